package asp.plugin.worker;

import asp.plugin.v1.Vitals;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryUsage;

/** What the virtual machine tells of itself: its heap, and how often and how long it collected garbage. */
final class VitalSigns {
    private static final long MICROS_PER_MILLI = 1_000;

    private VitalSigns() {}

    /** The figures of this moment; a bound or a collector that is not told (-1) is left out. */
    static Vitals read() {
        MemoryUsage heap = ManagementFactory.getMemoryMXBean().getHeapMemoryUsage();
        Vitals.Builder vitals = Vitals.newBuilder().setHeapUsedBytes(heap.getUsed());
        if (heap.getMax() >= 0) {
            vitals.setHeapLimitBytes(heap.getMax());
        }
        long count = 0;
        long millis = 0;
        for (GarbageCollectorMXBean collector : ManagementFactory.getGarbageCollectorMXBeans()) {
            count += Math.max(collector.getCollectionCount(), 0);
            millis += Math.max(collector.getCollectionTime(), 0);
        }
        return vitals.setGcCount(count).setGcMicros(millis * MICROS_PER_MILLI).build();
    }
}
