//! What the engine tells of itself: its heap, and how often and how long it collected garbage.
//! Keeps true: nothing here is on a call's path; the engine reports collections when the loop is free.
import { PerformanceObserver } from 'node:perf_hooks';
import { getHeapStatistics } from 'node:v8';

const MICROS_PER_MILLI = 1000;
const collections = { count: 0, millis: 0 };
let observer;

/** Counts collections from now on. */
export function observe() {
  observer = new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) {
      collections.count += 1;
      collections.millis += duration;
    }
  });
  observer.observe({ entryTypes: ['gc'] });
}

/** Returns a Vitals. */
export function vitals() {
  const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
  return {
    heapUsedBytes: used,
    heapLimitBytes: limit,
    gcCount: collections.count,
    gcMicros: Math.round(collections.millis * MICROS_PER_MILLI),
  };
}
