//! Calls of every kind whose gateway is killed about the moment at which they end. Each is asked for again at every gateway.
//!
//! Keeps true: what a client was told, and what it is told later, is in the fleet's history, which judges it. The order of kills
//! and the lengths of calls are those of the seed; what the machine makes of them is not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Fleet, Part};
use crate::caller::{Caller, Came, Tool, Work};
use crate::history::What;
use crate::wait;

/// Lengths of calls at the service, in milliseconds.
const LENGTHS: std::ops::Range<u64> = 500..800;
/// Milliseconds from the shortest call's expected end to the kill: from before all ends to after all of them.
const KILLS: std::ops::Range<u64> = 0..400;
/// Between two looks of a client at what it has begun.
const PACE: Duration = Duration::from_millis(20);

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It changes nothing; called again, it has the same answer.
    Reading,
    /// It runs at most once, under a key.
    Keyed,
    /// It changes something and has no key: nobody can ask for it again.
    Unkeyed,
    /// A task, which its client polls.
    Task,
    /// A call over REST, whose client chose its id.
    Rest,
    /// A plugin's, which saves that it did its thing.
    Saving,
}

impl Kind {
    const ALL: [Kind; 6] = [Kind::Reading, Kind::Keyed, Kind::Unkeyed, Kind::Task, Kind::Rest, Kind::Saving];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Reading => "reading",
            Kind::Keyed => "keyed",
            Kind::Unkeyed => "unkeyed",
            Kind::Task => "task",
            Kind::Rest => "rest",
            Kind::Saving => "checkpointing",
        }
    }

    fn work(self, thing: String, pause_ms: u64) -> Work {
        let tool = match self {
            Kind::Reading => Tool::Look,
            Kind::Keyed | Kind::Unkeyed | Kind::Rest => Tool::Once,
            Kind::Task => Tool::Hosted,
            Kind::Saving => Tool::Saving,
        };
        let work = Work::lasting(tool, thing, pause_ms);
        if matches!(self, Kind::Reading | Kind::Unkeyed) { work.without_key() } else { work }
    }
}

/// Calls of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub calls: usize,
    /// Those whose client was told the result before the gateway was gone.
    pub ended: usize,
    /// Those whose client lost its connection.
    pub cut_off: usize,
}

/// Clients of a fleet, one for each kind: what is kept of a user's calls has a bound.
pub struct Ends {
    callers: BTreeMap<Kind, Caller>,
    random: StdRng,
    /// Median time that a call takes beyond its length at the service.
    lags: BTreeMap<Kind, Duration>,
    batches: usize,
    tallies: BTreeMap<Kind, Tally>,
}

impl Ends {
    /// Measures how long calls take here, `each` of a kind. Without a runtime there are no checkpointing ones.
    pub async fn start(fleet: &Fleet, each: usize, seed: u64) -> Result<Ends> {
        let mut callers = BTreeMap::new();
        for kind in Kind::ALL {
            if kind != Kind::Saving || fleet.runtime.is_some() {
                callers.insert(kind, fleet.caller_named(&format!("ends-{}", kind.name())).await?);
            }
        }
        let random = StdRng::seed_from_u64(seed);
        let mut ends = Ends { callers, random, lags: BTreeMap::new(), batches: 0, tallies: BTreeMap::new() };
        let at = *fleet.cluster.addresses().first().context("a gateway")?;
        // The first calls open connections and start workers.
        for _ in 0..2 {
            let mut lags: BTreeMap<Kind, Vec<Duration>> = BTreeMap::new();
            for begun in ends.begin(at, each).joined().await? {
                lags.entry(begun.kind).or_default().push(begun.lag());
            }
            ends.lags = lags.into_iter().filter_map(|(kind, lags)| Some((kind, median(lags)?))).collect();
        }
        Ok(ends)
    }

    /// Begins `each` calls of every kind at a gateway, kills it about their ends, asks for all of them at the others, and again
    /// everywhere once it is back.
    pub async fn lose(&mut self, fleet: &mut Fleet, each: usize) -> Result<()> {
        let at = fleet.cluster.addresses();
        let lost = self.random.random_range(0..at.len());
        let place = *at.get(lost).context("a gateway of this number")?;
        let began = Instant::now();
        let calls = self.begin(place, each);
        let kill = Duration::from_millis(LENGTHS.start + self.random.random_range(KILLS));
        sleep_until(began + kill + self.longest_lag()).await;
        fleet.kill(Part::Gateway(lost)).await?;
        let begun = calls.joined().await?;
        self.count(&begun);
        let others: Vec<SocketAddr> = at.into_iter().filter(|one| *one != place).collect();
        ask_everywhere(&begun, &others).await?;
        fleet.start_again(Part::Gateway(lost)).await?;
        fleet.is_well().await?;
        ask_everywhere(&begun, &fleet.cluster.addresses()).await?;
        fleet.history.add("fleet", What::Well);
        Ok(())
    }

    pub fn tallies(&self) -> impl Iterator<Item = (Kind, Tally)> {
        self.tallies.iter().map(|(kind, tally)| (*kind, *tally))
    }

    fn longest_lag(&self) -> Duration {
        self.lags.values().max().copied().unwrap_or_default()
    }

    /// Those of the quicker kinds begin later, so that all end at about the same time.
    fn begin(&mut self, at: SocketAddr, each: usize) -> Calls {
        let mut calls = Calls(JoinSet::new());
        let longest = self.longest_lag();
        let batch = self.batches;
        self.batches += 1;
        for number in 0..each {
            for (kind, caller) in &self.callers {
                let thing = format!("{}-{batch}-{number}", kind.name());
                let work = kind.work(thing, self.random.random_range(LENGTHS));
                let lag = self.lags.get(kind).copied().unwrap_or_default();
                let begun = Begun {
                    kind: *kind,
                    work,
                    caller: caller.clone(),
                    task: None,
                    came: None,
                    took: Duration::ZERO,
                };
                calls.0.spawn(begun.follow(at, longest.saturating_sub(lag)));
            }
        }
        calls
    }

    fn count(&mut self, begun: &[Begun]) {
        for one in begun {
            let tally = self.tallies.entry(one.kind).or_default();
            tally.calls += 1;
            match one.came {
                Some(Came::Told(_)) => tally.ended += 1,
                Some(Came::Unanswered(_)) => tally.cut_off += 1,
                _ => {}
            }
        }
    }
}

/// Calls that are under way.
struct Calls(JoinSet<Result<Begun>>);

impl Calls {
    async fn joined(mut self) -> Result<Vec<Begun>> {
        let mut begun = Vec::new();
        while let Some(ended) = self.0.join_next().await {
            begun.push(ended??);
        }
        Ok(begun)
    }
}

/// A call, and what its client was told first.
struct Begun {
    kind: Kind,
    work: Work,
    caller: Caller,
    task: Option<String>,
    came: Option<Came>,
    took: Duration,
}

impl Begun {
    fn lag(&self) -> Duration {
        self.took.saturating_sub(Duration::from_millis(self.work.pause_ms))
    }

    /// Calls after a while, and looks at what became of it until it has ended or the connection is lost.
    async fn follow(mut self, at: SocketAddr, delay: Duration) -> Result<Begun> {
        sleep(delay).await;
        let began = Instant::now();
        loop {
            match self.look(at).await {
                Came::Runs(Some(task)) => self.task = Some(task),
                Came::Runs(None) => {}
                // Without a key it would be another call.
                came if matches!(came, Came::Unanswered(_)) || !came.is_open() || !self.work.has_key => {
                    self.came = Some(came);
                    self.took = began.elapsed();
                    return Ok(self);
                }
                _ => {}
            }
            ensure!(began.elapsed() < wait::START, "it does not end: {}", self.story());
            sleep(PACE).await;
        }
    }

    async fn look(&self, at: SocketAddr) -> Came {
        match (self.kind, &self.task) {
            (Kind::Task, None) => self.caller.begin(at, &self.work).await,
            (Kind::Task, Some(task)) => self.caller.task(at, &self.work, "tasks/get", task).await,
            (Kind::Rest, _) => self.caller.rest(at, &self.work, "PUT", "").await,
            _ => self.caller.call(at, &self.work).await,
        }
    }

    /// Asks for it until this gateway says how it ended.
    async fn ask(&self, at: SocketAddr) -> Result<()> {
        if self.kind == Kind::Unkeyed {
            return Ok(());
        }
        let again = || async {
            let came = match (self.kind, &self.task) {
                // It was lost before its client had its id: under its key there is its result, too.
                (Kind::Task, None) => self.caller.call(at, &self.work).await,
                _ => self.look(at).await,
            };
            Some(came).filter(|came| !came.is_open())
        };
        wait::until("a gateway says how it ended", wait::START, again)
            .await
            .with_context(|| format!("at {at}, {}", self.story()))?;
        Ok(())
    }

    fn story(&self) -> String {
        self.caller.history.story(&self.work.thing)
    }
}

async fn ask_everywhere(begun: &[Begun], places: &[SocketAddr]) -> Result<()> {
    for at in places {
        try_join_all(begun.iter().map(|one| one.ask(*at))).await?;
    }
    Ok(())
}

fn median(mut lags: Vec<Duration>) -> Option<Duration> {
    lags.sort_unstable();
    lags.get(lags.len() / 2).copied()
}

/// The things that the plugin of `tests/fixtures/saving` did again after it had saved that they are done, by its log.
pub fn done_again(log: &[String]) -> Vec<String> {
    let of = |line: &str, word: &str| {
        let (thing, _) = line.split_once(word)?.1.split_once(';')?;
        Some(thing.to_owned())
    };
    let mut saved = BTreeSet::new();
    let mut again = Vec::new();
    for line in log {
        if let Some(thing) = of(line, "did checkpointing-").filter(|thing| saved.contains(thing)) {
            again.push(thing);
        }
        saved.extend(of(line, "saved checkpointing-"));
    }
    again
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(log: &[&str]) -> Vec<String> {
        done_again(&log.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_done_after_it_was_saved_is_done_again() {
        let once = ["did checkpointing-1-2;", "saved checkpointing-1-2;", "did checkpointing-1-3;"];
        assert!(again(&once).is_empty());
        // One that was lost before it was saved is done once more.
        assert!(again(&["did checkpointing-1-2;", "did checkpointing-1-2;"]).is_empty());
        let twice =
            [r#"{"message":"did checkpointing-1-2;"}"#, "saved checkpointing-1-2;", "did checkpointing-1-2;"];
        assert_eq!(again(&twice), ["1-2"]);
    }
}
