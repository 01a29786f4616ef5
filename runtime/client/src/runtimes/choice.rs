//! Choice of the runtime that gets a call.
//!
//! Owns: the ranking of a language's runtimes, and the calls that each has. Keeps true: a better runtime is never
//! passed over for a worse one; among equally good ones two are drawn and the less busy one is taken, so that
//! gateways with the same information do not all choose the same one; a runtime's own queue length only breaks ties
//! between equal numbers of calls, because it is seconds old; a single runtime costs a call neither a lock nor a
//! draw.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use super::runtime::{Link, Runtime};

/// Suitability of a runtime for a plugin, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suitability {
    /// The plugin is ready, with a worker.
    Ready,
    /// The runtime has not answered for the plugin.
    Unheard,
    /// The plugin is quarantined, drained, or fails to start.
    Troubled,
    /// The plugin cannot run there.
    Impossible,
}

/// Runtimes of a language.
#[derive(Default)]
pub struct Fleet {
    members: ArcSwap<Vec<Arc<Runtime>>>,
}

/// A call's share of a runtime's load, until this is dropped.
pub struct RuntimePermit(Arc<Runtime>);

impl Fleet {
    pub(super) fn replace(&self, members: Vec<Arc<Runtime>>) {
        self.members.store(Arc::new(members));
    }

    pub fn has_several(&self) -> bool {
        self.members.load().len() > 1
    }

    pub fn all(&self) -> Vec<Arc<Runtime>> {
        self.members.load().to_vec()
    }

    /// Returns the only runtime; `None` if there are several, or none.
    pub fn only(&self) -> Option<Arc<Runtime>> {
        match self.members.load().as_slice() {
            [only] => Some(only.clone()),
            _ => None,
        }
    }

    /// Chooses the best runtime that is not among `refused`: the call's own if it takes calls, otherwise the less
    /// busy of two of those that suit best.
    pub fn choose(
        &self,
        own: Option<&Arc<Runtime>>,
        refused: &[Arc<Runtime>],
        suits: impl Fn(&Runtime) -> Suitability,
    ) -> Option<RuntimePermit> {
        let members = self.members.load();
        let left = || members.iter().filter(|member| !is_among(member, refused));
        if let Some(own) = own
            && left().any(|member| Arc::ptr_eq(member, own))
            && own.condition() == Link::Answers
            && suits(own) != Suitability::Impossible
        {
            return Some(RuntimePermit::of(own.clone()));
        }
        let mut drawn = RuntimeDraw { rank: None, seen: 0, two: [None, None] };
        for member in left() {
            drawn.offer(member, rank(suits(member), member.condition()));
        }
        drawn.less_busy().cloned().map(RuntimePermit::of)
    }

    /// Returns when the first of them may be tried again; `None` if one may be tried now.
    pub fn retry_at(&self) -> Option<Instant> {
        let members = self.members.load();
        let mut first = None;
        for member in members.iter() {
            // One runtime that may be tried now is enough.
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

pub fn is_among(runtime: &Arc<Runtime>, others: &[Arc<Runtime>]) -> bool {
    others.iter().any(|other| Arc::ptr_eq(other, runtime))
}

/// Ranks a runtime; lower is better. A runtime that cannot run the plugin is last; then the connection decides, and
/// among those that answer, their suitability for the plugin. A new runtime answers within a moment, or does not.
fn rank(suits: Suitability, link: Link) -> (bool, Link, Suitability) {
    let told = if link == Link::Answers { suits } else { Suitability::Ready };
    (suits == Suitability::Impossible, link, told)
}

/// Two of the best runtimes, each as likely as any other.
struct RuntimeDraw<'a> {
    rank: Option<(bool, Link, Suitability)>,
    seen: usize,
    two: [Option<&'a Arc<Runtime>>; 2],
}

impl<'a> RuntimeDraw<'a> {
    fn offer(&mut self, runtime: &'a Arc<Runtime>, rank: (bool, Link, Suitability)) {
        if self.rank.is_none_or(|best| rank < best) {
            *self = RuntimeDraw { rank: Some(rank), seen: 1, two: [Some(runtime), None] };
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

impl RuntimePermit {
    pub fn of(runtime: Arc<Runtime>) -> RuntimePermit {
        runtime.outstanding.fetch_add(1, Ordering::Relaxed);
        RuntimePermit(runtime)
    }
}

impl Deref for RuntimePermit {
    type Target = Arc<Runtime>;

    fn deref(&self) -> &Arc<Runtime> {
        &self.0
    }
}

impl Drop for RuntimePermit {
    fn drop(&mut self) {
        self.0.outstanding.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
