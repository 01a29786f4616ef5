//! Clients and an admin of a fleet, all of whose requests and answers are in its history, while its processes are lost.
//!
//! Keeps true: whatever a client began it asks for until it is told how that ended, and asks every gateway again at the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Fleet;
use super::admin::Admin;
use super::places::Places;
use crate::caller::{Caller, Came, Tool, Work};
use crate::wait;

/// Clients, each of a user of its own: what is kept of a user's calls has a bound.
const CLIENTS: u64 = 6;
/// Longest time that a thing takes, in milliseconds.
const LONGEST: u64 = 1_500;
/// Between two attempts of a client.
const PACE: Duration = Duration::from_millis(200);
/// How long a client tries to learn how something ended before it goes on with the next.
const PATIENCE: Duration = Duration::from_secs(90);

/// How something is asked for again.
#[derive(Clone, Debug)]
enum Way {
    /// Under its key.
    Call,
    Task(String),
    Rest,
}

struct Begun {
    work: Work,
    way: Way,
}

/// What is going on.
pub struct Load {
    pub places: Places,
    is_over: Arc<AtomicBool>,
    clients: JoinSet<Result<(Caller, Vec<Begun>)>>,
    admin: tokio::task::JoinHandle<Result<Admin>>,
}

/// How much there was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub things: usize,
    pub writes: usize,
}

impl Load {
    pub async fn start(fleet: &Fleet, seed: u64) -> Result<Load> {
        let places = Places::default();
        places.learn(fleet);
        let is_over = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let caller = fleet.caller_named(&format!("client-{number}")).await?;
            let random = StdRng::seed_from_u64(seed.wrapping_add(number));
            let client = Client { number, caller, random, places: places.clone(), begun: Vec::new() };
            clients.spawn(client.run(is_over.clone()));
        }
        let admin = Admin::of(fleet, seed).await?;
        let admin = tokio::spawn(admin.run(places.clone(), is_over.clone()));
        Ok(Load { places, is_over, clients, admin })
    }

    /// Ends it, and asks everywhere for all that there was; the fleet is well again.
    pub async fn finish(mut self, fleet: &Fleet) -> Result<Figures> {
        self.is_over.store(true, Ordering::Release);
        let mut figures = Figures::default();
        let gateways = fleet.cluster.addresses();
        let mut readers = JoinSet::new();
        while let Some(client) = self.clients.join_next().await {
            let (caller, begun) = client??;
            figures.things += begun.len();
            let gateways = gateways.clone();
            readers.spawn(async move {
                for begun in &begun {
                    read_everywhere(&caller, begun, &gateways).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(read) = readers.join_next().await {
            read??;
        }
        let admin = self.admin.await??;
        figures.writes = admin.writes();
        admin.look(fleet).await?;
        Ok(figures)
    }
}

async fn read_everywhere(caller: &Caller, begun: &Begun, gateways: &[SocketAddr]) -> Result<()> {
    for at in gateways {
        let read = || async { Some(ask(caller, begun, *at).await).filter(|came| !came.is_open()) };
        let read = wait::until("every gateway says how it ended", wait::START, read).await;
        read.with_context(|| format!("at {at}, {}", caller.history.story(&begun.work.thing)))?;
    }
    Ok(())
}

async fn ask(caller: &Caller, Begun { work, way }: &Begun, at: SocketAddr) -> Came {
    match way {
        Way::Call => caller.call(at, work).await,
        Way::Task(task) => caller.task(at, work, "tasks/get", task).await,
        Way::Rest => caller.rest(at, work, "PUT", "").await,
    }
}

struct Client {
    number: u64,
    caller: Caller,
    random: StdRng,
    places: Places,
    begun: Vec<Begun>,
}

impl Client {
    async fn run(mut self, is_over: Arc<AtomicBool>) -> Result<(Caller, Vec<Begun>)> {
        while !is_over.load(Ordering::Acquire) {
            let tool = *Tool::ALL.choose(&mut self.random).context("a tool")?;
            let thing = format!("{}-{}", self.number, self.begun.len());
            let work = Work::lasting(tool, thing, self.random.random_range(0..LONGEST));
            let way = match (tool, self.random.random_range(0..3)) {
                (Tool::Hosted, 0 | 1) => self.task(&work).await?,
                (_, 2) => Way::Rest,
                _ => Way::Call,
            };
            let begun = Begun { work, way };
            self.until_closed(&begun).await?;
            self.begun.push(begun);
        }
        Ok((self.caller, self.begun))
    }

    /// Begins a task, and cancels each third at some gateway.
    async fn task(&mut self, work: &Work) -> Result<Way> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            match self.caller.begin(self.places.any(&mut self.random)?, work).await {
                Came::Runs(Some(task)) => {
                    if self.random.random_bool(0.3) {
                        sleep(Duration::from_millis(self.random.random_range(0..LONGEST))).await;
                        let at = self.places.any(&mut self.random)?;
                        self.caller.task(at, work, "tasks/cancel", &task).await;
                    }
                    return Ok(Way::Task(task));
                }
                came if came.is_open() => sleep(PACE).await,
                // Its key has its answer.
                _ => break,
            }
        }
        Ok(Way::Call)
    }

    async fn until_closed(&mut self, begun: &Begun) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let at = self.places.any(&mut self.random)?;
            if !ask(&self.caller, begun, at).await.is_open() {
                return Ok(());
            }
            sleep(PACE).await;
        }
        ensure!(!self.begun.is_empty(), "nothing is answered at all: {:?}", begun.work);
        Ok(())
    }
}
