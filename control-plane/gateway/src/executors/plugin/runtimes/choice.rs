//! Which of the runtimes of a language gets a call.
//!
//! Owns: the order of what is known of them, and the calls that each has. Keeps true: a better one is never passed over for a worse
//! one; among equally good ones two are drawn and the less busy one is taken, so that gateways that hear the same do not all run to the
//! same one; what a runtime says of its own queue decides between equal numbers of calls, because it is seconds old; one runtime alone
//! costs a call no lock and no draw.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use super::Runtime;

/// What a connection tells of a runtime, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Link {
    Answers,
    /// It has not answered yet: it may have just been added.
    New,
    Drains,
    /// It does not answer.
    Failing,
}

/// What is known of a plugin at a runtime, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Suits {
    /// It is there, with a worker.
    Ready,
    /// The runtime has not answered for it.
    Unheard,
    /// It is quarantined, drained, or fails to start.
    Troubled,
    /// It cannot run there.
    Impossible,
}

/// The runtimes of a language.
#[derive(Default)]
pub(in super::super) struct Fleet {
    members: ArcSwap<Vec<Arc<Runtime>>>,
}

/// A call's part of a runtime's load, until this is dropped.
pub(in super::super) struct Taken(Arc<Runtime>);

impl Fleet {
    pub(super) fn replace(&self, members: Vec<Arc<Runtime>>) {
        self.members.store(Arc::new(members));
    }

    pub(in super::super) fn has_several(&self) -> bool {
        self.members.load().len() > 1
    }

    pub(in super::super) fn all(&self) -> Vec<Arc<Runtime>> {
        self.members.load().to_vec()
    }

    /// The only one; `None` where there are others, or none.
    pub(in super::super) fn only(&self) -> Option<Arc<Runtime>> {
        match self.members.load().as_slice() {
            [only] => Some(only.clone()),
            _ => None,
        }
    }

    /// The best one that is not among `refused`: the call's own where that one takes calls, else the least busy of those that
    /// suit best.
    pub(in super::super) fn choose(
        &self,
        own: Option<&Arc<Runtime>>,
        refused: &[Arc<Runtime>],
        suits: impl Fn(&Runtime) -> Suits,
    ) -> Option<Taken> {
        let members = self.members.load();
        let left = || members.iter().filter(|member| !is_among(member, refused));
        if let Some(own) = own
            && left().any(|member| Arc::ptr_eq(member, own))
            && own.condition() == Link::Answers
            && suits(own) != Suits::Impossible
        {
            return Some(Taken::of(own.clone()));
        }
        let mut drawn = Drawn { rank: None, seen: 0, two: [None, None] };
        for member in left() {
            drawn.offer(member, rank(suits(member), member.condition()));
        }
        drawn.less_busy().cloned().map(Taken::of)
    }

    /// When one of them may be tried again; `None`: at once.
    pub(in super::super) fn retry_at(&self) -> Option<Instant> {
        let members = self.members.load();
        let mut first = None;
        for member in members.iter() {
            // One that may be tried now is enough.
            let at = member.retry_at()?;
            first = Some(first.map_or(at, |first: Instant| first.min(at)));
        }
        first
    }

    #[cfg(test)]
    pub(super) fn members(&self) -> Arc<Vec<Arc<Runtime>>> {
        self.members.load_full()
    }
}

pub(in super::super) fn is_among(runtime: &Arc<Runtime>, others: &[Arc<Runtime>]) -> bool {
    others.iter().any(|other| Arc::ptr_eq(other, runtime))
}

/// Lower is better. What cannot run the plugin is last; then the connection decides, and among those that answer what they say of
/// the plugin. One that is new answers within a moment, or does not.
fn rank(suits: Suits, link: Link) -> (bool, Link, Suits) {
    let told = if link == Link::Answers { suits } else { Suits::Ready };
    (suits == Suits::Impossible, link, told)
}

/// Two of the best ones, each as likely as any other.
struct Drawn<'a> {
    rank: Option<(bool, Link, Suits)>,
    seen: usize,
    two: [Option<&'a Arc<Runtime>>; 2],
}

impl<'a> Drawn<'a> {
    fn offer(&mut self, runtime: &'a Arc<Runtime>, rank: (bool, Link, Suits)) {
        if self.rank.is_none_or(|best| rank < best) {
            *self = Drawn { rank: Some(rank), seen: 1, two: [Some(runtime), None] };
        } else if self.rank == Some(rank) {
            self.seen += 1;
            let place = if self.seen == 2 { 1 } else { rand::random_range(0..self.seen) };
            if let Some(drawn) = self.two.get_mut(place) {
                *drawn = Some(runtime);
            }
        }
    }

    fn less_busy(&self) -> Option<&'a Arc<Runtime>> {
        match self.two {
            [Some(one), Some(other)] => {
                let first = one.load();
                let second = other.load();
                let takes_other = second < first || second == first && rand::random();
                Some(if takes_other { other } else { one })
            }
            [one, _] => one,
        }
    }
}

impl Taken {
    pub(in super::super) fn of(runtime: Arc<Runtime>) -> Taken {
        runtime.outstanding.fetch_add(1, Ordering::Relaxed);
        Taken(runtime)
    }
}

impl Deref for Taken {
    type Target = Arc<Runtime>;

    fn deref(&self) -> &Arc<Runtime> {
        &self.0
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.outstanding.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
