//! State of one bucket in the memory of a process, for each kind of limit.
//!
//! Pure: the time is given. Keeps true: a bucket never admits more than its kind allows; a clock that goes back admits
//! nothing more.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::{Bucket, BucketKind};

/// Number of parts of a sliding window. The oldest part counts as a whole, so that no window admits more than its capacity.
pub(super) const PARTS: u64 = 10;
/// Wait in seconds that is proposed if all slots are taken: nobody knows when one is given back.
const SLOT_WAIT: f64 = 1.0;
/// Maximum time in seconds for a bucket to fill.
const LONGEST: f64 = 86_400.0 * 365.0;

/// Time of a draw: the process's own, and the time of day to which fixed windows are aligned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub(super) instant: Instant,
    /// Unix milliseconds.
    pub(super) unix_ms: u64,
}

/// State of a bucket.
#[derive(Debug)]
pub(super) enum State {
    Tokens {
        tokens: f64,
        at: Instant,
    },
    /// Number of draws in the window of this number since 1970.
    Fixed {
        window: u64,
        used: u64,
    },
    /// Draws by the number of their part since 1970; at most [`PARTS`] + 1 entries.
    Sliding(Vec<(u64, u64)>),
    Slots(Slots),
}

/// Slots by holder. A call that looks for one reads no more than its own and those that have ended: an org may hold thousands, and
/// all orgs share the table.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Unix milliseconds until which each holder has a slot.
    until: HashMap<String, u64>,
    /// The same in the order of time.
    ends: BTreeSet<(u64, String)>,
}

impl Slots {
    /// Returns the number of slots of others than this holder.
    fn of_others(&self, holder: &str, now_ms: u64) -> u64 {
        let ended = self.ends.iter().take_while(|(until, _)| *until <= now_ms).count();
        let is_held = self.until.get(holder).is_some_and(|until| *until > now_ms);
        self.until.len().saturating_sub(ended + usize::from(is_held)) as u64
    }

    /// Gives a slot to a holder until then, and forgets those that have ended.
    fn hold(&mut self, holder: &str, until_ms: u64, now_ms: u64) {
        while self.ends.first().is_some_and(|(until, _)| *until <= now_ms) {
            if let Some((_, holder)) = self.ends.pop_first() {
                self.until.remove(&holder);
            }
        }
        self.release(holder);
        self.until.insert(holder.to_owned(), until_ms);
        self.ends.insert((until_ms, holder.to_owned()));
    }

    fn release(&mut self, holder: &str) {
        if let Some(until) = self.until.remove(holder) {
            self.ends.remove(&(until, holder.to_owned()));
        }
    }

    /// Returns the time at which the last slot ends.
    fn last_end(&self) -> u64 {
        self.ends.last().map_or(0, |(until, _)| *until)
    }
}

impl State {
    /// Returns the state of a bucket from which nothing was drawn, or of a token bucket with this many tokens.
    pub(super) fn new(bucket: &Bucket, tokens: f64, now: Now) -> State {
        match &bucket.kind {
            BucketKind::Tokens => State::Tokens { tokens, at: now.instant },
            BucketKind::Fixed { seconds } => State::Fixed { window: number_of(now, *seconds, 1), used: 0 },
            BucketKind::Sliding { .. } => State::Sliding(Vec::new()),
            BucketKind::Slots { .. } => State::Slots(Slots::default()),
        }
    }

    /// Returns how many draws remain after one now, or the seconds to wait for one.
    pub(super) fn room(&self, bucket: &Bucket, now: Now) -> Result<u64, f64> {
        match (self, &bucket.kind) {
            (State::Tokens { tokens, at }, BucketKind::Tokens) => {
                tokens_left(refilled(*tokens, *at, bucket, now), bucket)
            }
            (State::Fixed { window, used }, BucketKind::Fixed { seconds }) => {
                let current = number_of(now, *seconds, 1).max(*window);
                let used = if current == *window { *used } else { 0 };
                let end = current.saturating_add(1).saturating_mul(seconds.saturating_mul(1000));
                draws_after(bucket.capacity, used).ok_or_else(|| seconds_until(end, now))
            }
            (State::Sliding(parts), BucketKind::Sliding { seconds }) => {
                let counted = counted(parts, number_of(now, *seconds, PARTS));
                let used: u64 = counted.iter().map(|(_, used)| used).sum();
                let end = |part: u64| part.saturating_add(PARTS + 1).saturating_mul(part_ms(*seconds));
                draws_after(bucket.capacity, used).ok_or_else(|| {
                    // More parts must leave if the limit became smaller.
                    let mut rest: u64 = used;
                    let freed = counted.iter().find(|(_, used)| {
                        rest = rest.saturating_sub(*used);
                        rest < bucket.capacity
                    });
                    freed.map_or(SLOT_WAIT, |(part, _)| seconds_until(end(*part), now))
                })
            }
            (State::Slots(slots), BucketKind::Slots { holder, .. }) => {
                draws_after(bucket.capacity, slots.of_others(holder, now.unix_ms)).ok_or(SLOT_WAIT)
            }
            // A limit whose kind changed has another key.
            _ => draws_after(bucket.capacity, 0).ok_or(SLOT_WAIT),
        }
    }

    /// Draws once, whether there is room or not.
    pub(super) fn draw(&mut self, bucket: &Bucket, now: Now) {
        match (self, &bucket.kind) {
            (State::Tokens { tokens, at }, BucketKind::Tokens) => {
                *tokens = refilled(*tokens, *at, bucket, now) - 1.0;
                *at = now.instant.max(*at);
            }
            (State::Fixed { window, used }, BucketKind::Fixed { seconds }) => {
                let current = number_of(now, *seconds, 1).max(*window);
                *used = if current == *window { used.saturating_add(1) } else { 1 };
                *window = current;
            }
            (State::Sliding(parts), BucketKind::Sliding { seconds }) => {
                let current = number_of(now, *seconds, PARTS);
                *parts = counted(parts, current);
                let newest = parts.last().map_or(current, |(part, _)| current.max(*part));
                match parts.last_mut() {
                    Some((part, used)) if *part == newest => *used = used.saturating_add(1),
                    _ => parts.push((newest, 1)),
                }
            }
            (State::Slots(slots), BucketKind::Slots { holder, lease_ms }) => {
                slots.hold(holder, now.unix_ms.saturating_add(*lease_ms), now.unix_ms);
            }
            (state, _) => {
                *state = State::new(bucket, bucket.capacity as f64 - 1.0, now);
            }
        }
    }

    /// Undoes a draw of the given Unix time. A window that has ended since, and a sliding one, keep it.
    pub(super) fn give_back(&mut self, bucket: &Bucket, drawn_ms: u64, now: Now) {
        match (self, &bucket.kind) {
            (State::Tokens { tokens, at }, BucketKind::Tokens) => {
                *tokens = (refilled(*tokens, *at, bucket, now) + 1.0).min(bucket.capacity as f64);
                *at = now.instant.max(*at);
            }
            (State::Fixed { window, used }, BucketKind::Fixed { seconds })
                if bucket.window_of(drawn_ms) == Some(*window) && number_of(now, *seconds, 1) == *window =>
            {
                *used = used.saturating_sub(1);
            }
            (State::Slots(slots), BucketKind::Slots { holder, .. }) => slots.release(holder),
            _ => {}
        }
    }

    /// Extends the lease of a slot.
    pub(super) fn renew(&mut self, bucket: &Bucket, now: Now) {
        if matches!(self, State::Slots(_)) {
            self.draw(bucket, now);
        }
    }

    /// Returns when the bucket is as if nothing had been drawn.
    pub(super) fn full_at(&self, bucket: &Bucket, now: Now) -> Instant {
        let at_unix = |unix_ms: u64| now.instant + seconds(seconds_until(unix_ms, now));
        match (self, &bucket.kind) {
            (State::Tokens { tokens, at }, _) => {
                let missing = (bucket.capacity as f64 - tokens).max(0.0);
                *at + seconds_of(missing, bucket)
            }
            (State::Fixed { window, .. }, BucketKind::Fixed { seconds }) => {
                at_unix(window.saturating_add(1).saturating_mul(seconds.saturating_mul(1000)))
            }
            (State::Sliding(parts), BucketKind::Sliding { seconds }) => {
                let last = parts.last().map_or(0, |(part, _)| part.saturating_add(PARTS + 1));
                at_unix(last.saturating_mul(part_ms(*seconds)))
            }
            (State::Slots(slots), _) => at_unix(slots.last_end()),
            _ => now.instant,
        }
    }
}

/// Returns the tokens left after a draw, or the seconds to wait for one.
pub(super) fn tokens_left(tokens: f64, bucket: &Bucket) -> Result<u64, f64> {
    if tokens < 1.0 {
        return Err((1.0 - tokens) / bucket.refill_per_second.max(f64::MIN_POSITIVE));
    }
    Ok((tokens - 1.0) as u64)
}

/// Returns the time in which a bucket regains the given number of tokens.
pub(super) fn seconds_of(tokens: f64, bucket: &Bucket) -> Duration {
    seconds(tokens / bucket.refill_per_second.max(f64::MIN_POSITIVE))
}

fn seconds(number: f64) -> Duration {
    Duration::from_secs_f64(number.clamp(0.0, LONGEST))
}

fn refilled(tokens: f64, at: Instant, bucket: &Bucket, now: Now) -> f64 {
    let back = now.instant.saturating_duration_since(at).as_secs_f64() * bucket.refill_per_second;
    (tokens + back).min(bucket.capacity as f64)
}

fn draws_after(capacity: u64, used: u64) -> Option<u64> {
    capacity.checked_sub(used)?.checked_sub(1)
}

/// Returns the number since 1970 of the current part of a window that has this many.
fn number_of(now: Now, seconds: u64, parts: u64) -> u64 {
    now.unix_ms / (seconds.max(1).saturating_mul(1000) / parts).max(1)
}

fn part_ms(seconds: u64) -> u64 {
    (seconds.max(1).saturating_mul(1000) / PARTS).max(1)
}

/// Returns the parts that count at the given one, oldest first. A later one counts too: the clock went back.
fn counted(parts: &[(u64, u64)], current: u64) -> Vec<(u64, u64)> {
    parts.iter().copied().filter(|(part, _)| part.saturating_add(PARTS) >= current).collect()
}

fn seconds_until(unix_ms: u64, now: Now) -> f64 {
    unix_ms.saturating_sub(now.unix_ms) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_counts_until_it_is_released_or_ends() {
        let mut slots = Slots::default();
        for (holder, until) in [("a", 10), ("b", 20), ("c", 30)] {
            slots.hold(holder, until, 0);
        }
        assert_eq!((slots.of_others("x", 0), slots.of_others("a", 0)), (3, 2));
        assert_eq!((slots.of_others("x", 10), slots.of_others("a", 10)), (2, 2), "one has ended");
        slots.hold("a", 40, 5);
        assert_eq!((slots.of_others("x", 10), slots.last_end()), (3, 40), "it was renewed");
        slots.release("a");
        slots.release("unknown");
        assert_eq!((slots.of_others("x", 10), slots.last_end()), (2, 30));
        slots.hold("d", 50, 30);
        assert_eq!((slots.until.len(), slots.ends.len()), (1, 1), "ended ones are forgotten");
    }
}
