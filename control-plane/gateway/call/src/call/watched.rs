//! Values with optional waiters. Waking is most of the cost of a change, and most values of a call have no waiters.

use tokio::sync::watch;

/// Changes a value; `change` returns whether it did. A task that reads the value later sees the change, and one that
/// read it before is woken: both lock the value, so no change is missed.
pub(super) fn change<T>(watched: &watch::Sender<T>, change: impl FnOnce(&mut T) -> bool) {
    watched.send_if_modified(|value| change(value) && watched.receiver_count() > 0);
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_change_is_seen_by_who_looks_later_and_wakes_who_looked_before() {
        let watched = watch::Sender::new(1);
        let set = |to| {
            change(&watched, |value| std::mem::replace(value, to) != to);
        };
        set(2);
        let mut late = watched.subscribe();
        assert_eq!(*late.borrow_and_update(), 2);
        assert!(late.changed().now_or_never().is_none());
        set(2);
        assert!(late.changed().now_or_never().is_none(), "nothing changed");
        set(3);
        assert!(late.changed().now_or_never().is_some_and(|changed| changed.is_ok()));
        assert_eq!(*late.borrow_and_update(), 3);
        drop(late);
        set(4);
        assert_eq!(*watched.borrow(), 4);
    }
}
