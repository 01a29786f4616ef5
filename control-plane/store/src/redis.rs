//! A Redis server, or a Redis Cluster, that all gateways share: what must be fast and may be lost.
//!
//! Owns: the connections, their address, and how long an answer may take. Refuses: to keep anything whose loss is a fault of
//! security or money (I-6). Keeps true: opening waits for nobody, so that a gateway starts while Redis is away; whoever asks
//! gets an answer or an error within a bound, [`ANSWER_WITHIN`] and where much is on its way [`ROOM_WITHIN`]; what is large
//! delays nothing of another lane; an error never says a password.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::cluster::{ClusterClient, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::{Client, Cmd, FromRedisValue, RedisResult, ScriptInvocation};

use self::traffic::Traffic;
use crate::clock::milliseconds;

mod answers;
mod bus;
mod counters;
mod followers;
mod inbox;
mod outbox;
mod sessions;
mod traffic;

pub use answers::RedisAnswers;
pub use bus::RedisBus;
pub use counters::RedisCounters;
pub use followers::RedisFollowers;
pub use inbox::RedisInbox;
pub use outbox::RedisOutbox;
pub use sessions::RedisDirectory;

/// The longest that a call waits for Redis, which answers within a millisecond or two where it is well. What waits longer
/// costs its caller more than what Redis would have said is worth.
pub const ANSWER_WITHIN: Duration = Duration::from_millis(250);
/// The longest that a command waits until less is on its way to Redis.
pub const ROOM_WITHIN: Duration = Duration::from_secs(1);
/// Of one attempt to connect: several fit into the five seconds in which a Redis that came back is used again.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Between attempts to connect, at most.
const RECONNECT_EVERY: Duration = Duration::from_millis(500);
/// Longer than its client tries by itself.
const REPLACED_AFTER: Duration = Duration::from_secs(4);
/// Between the scheme of one server and the addresses of a Cluster.
const CLUSTER: &str = "+cluster";

/// One gateway's connections to Redis, apart by what they carry: large events delay no limit of anybody, and a lane that is silent
/// stops no other.
pub struct Lanes {
    /// Decisions on limits.
    pub limits: Redis,
    /// The directory of sessions, the bus, and the inboxes and followers of calls.
    pub directory: Redis,
    /// The events of calls, and answers that are kept.
    pub events: Redis,
}

impl Lanes {
    /// Needs a running tokio runtime. Nothing is asked yet.
    pub fn open(url: &str) -> Result<Lanes, BadUrl> {
        Lanes::open_within(url, ANSWER_WITHIN)
    }

    /// The same with another bound on an answer.
    pub fn open_within(url: &str, within: Duration) -> Result<Lanes, BadUrl> {
        let lane = || Redis::open_within(url, within);
        Ok(Lanes { limits: lane()?, directory: lane()?, events: lane()? })
    }
}

/// One lane: a Redis that is connected to when it is first asked, and again whenever the connection was lost.
#[derive(Clone)]
pub struct Redis {
    link: Link,
    /// Bytes on their way, and whether they are answered.
    traffic: Arc<Traffic>,
    /// Of an answer.
    within: Duration,
    /// The server, or some nodes of the Cluster, for connections that wait.
    nodes: Arc<[Client]>,
}

#[derive(Clone)]
enum Link {
    One(Arc<One>),
    Cluster(ClusterConnection),
}

/// One server. Keeps true: a connection that gives no answer for [`REPLACED_AFTER`] is made anew, whatever the reason: its
/// client gives up by itself where it is not let in, and stays with a server that is gone or has become a replica.
struct One {
    client: Client,
    within: Duration,
    manager: Mutex<ConnectionManager>,
    failing_since: Mutex<Option<Instant>>,
}

impl One {
    fn new(client: Client, within: Duration) -> RedisResult<One> {
        let manager = Mutex::new(One::connect(&client, within)?);
        Ok(One { client, within, manager, failing_since: Mutex::default() })
    }

    /// Nothing is asked yet.
    fn connect(client: &Client, within: Duration) -> RedisResult<ConnectionManager> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT_WITHIN))
            .set_response_timeout(Some(within))
            .set_max_delay(RECONNECT_EVERY);
        ConnectionManager::new_lazy_with_config(client.clone(), config)
    }

    fn manager(&self) -> ConnectionManager {
        self.manager.lock().clone()
    }

    /// Notes whether there was an answer.
    fn noted(&self, answered: bool) {
        let mut since = self.failing_since.lock();
        match *since {
            _ if answered => *since = None,
            None => *since = Some(Instant::now()),
            Some(at) if at.elapsed() >= REPLACED_AFTER => {
                // It could be made before, and nothing is asked.
                if let Ok(fresh) = One::connect(&self.client, self.within) {
                    *self.manager.lock() = fresh;
                }
                *since = None;
            }
            Some(_) => {}
        }
    }
}

/// Why there is no such Redis. Says nothing of the URL, which may hold a password.
#[derive(Debug, thiserror::Error)]
pub enum BadUrl {
    #[error(
        "must be redis[s]://[user:password@]host[:port][/number], redis[s]+cluster://[user:password@]host[:port],… or \
         unix:///path"
    )]
    Form,
    #[error("names a Redis whose client cannot be made: {0}")]
    Client(String),
}

/// Redis gave no answer, or refused.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("Redis does not answer within {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("Redis does not answer within its time, and is asked again in a moment")]
    Away,
    #[error("more is on its way to Redis than it takes within {} ms", ROOM_WITHIN.as_millis())]
    Busy,
    #[error("Redis: {0}")]
    Redis(#[from] redis::RedisError),
}

impl Fault {
    /// Whether nobody answered; a refusal is an answer.
    fn is_silence(&self) -> bool {
        match self {
            Fault::Silent(_) => true,
            Fault::Redis(error) => error.is_io_error() || error.is_timeout(),
            Fault::Away | Fault::Busy => false,
        }
    }
}

/// Whether a URL names a Redis. Nothing is asked.
pub fn check(url: &str) -> Result<(), BadUrl> {
    match cluster(url, ANSWER_WITHIN)? {
        Some(_) => Ok(()),
        None => server(url).map(drop),
    }
}

impl Redis {
    /// Needs a running tokio runtime. Nothing is asked yet.
    pub fn open(url: &str) -> Result<Redis, BadUrl> {
        Redis::open_within(url, ANSWER_WITHIN)
    }

    /// The same with another bound on an answer.
    pub fn open_within(url: &str, within: Duration) -> Result<Redis, BadUrl> {
        let (link, nodes) = match cluster(url, within)? {
            Some((client, nodes)) => {
                (Link::Cluster(client.get_pending_async_connection_with_config(ClusterConfig::new())), nodes)
            }
            None => {
                let client = server(url)?;
                let one =
                    One::new(client.clone(), within).map_err(|error| BadUrl::Client(error.to_string()))?;
                (Link::One(Arc::new(one)), vec![client])
            }
        };
        Ok(Redis { link, traffic: Arc::default(), within, nodes: nodes.into() })
    }

    /// Asks what is of no tenant, or of one key.
    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Fault> {
        self.ask_large(command, 0).await
    }

    /// The same with a command of so many bytes.
    async fn ask_large<T: FromRedisValue>(&self, command: &Cmd, bytes: usize) -> Result<T, Fault> {
        let asking = async {
            match &self.link {
                Link::One(one) => one_answer(one, command.query_async(&mut one.manager())).await,
                Link::Cluster(connection) => {
                    in_time(self.within, command.query_async(&mut connection.clone())).await
                }
            }
        };
        self.traffic.admit(bytes, asking).await
    }

    /// Runs a script, all of whose keys are of one tenant.
    async fn run<T: FromRedisValue>(&self, invocation: &ScriptInvocation<'_>) -> Result<T, Fault> {
        self.run_large(invocation, 0).await
    }

    /// The same with arguments of so many bytes.
    async fn run_large<T: FromRedisValue>(
        &self,
        invocation: &ScriptInvocation<'_>,
        bytes: usize,
    ) -> Result<T, Fault> {
        let asking = async {
            match &self.link {
                Link::One(one) => one_answer(one, invocation.invoke_async(&mut one.manager())).await,
                Link::Cluster(connection) => {
                    in_time(self.within, invocation.invoke_async(&mut connection.clone())).await
                }
            }
        };
        self.traffic.admit(bytes, asking).await
    }
}

async fn one_answer<T>(one: &One, answer: impl Future<Output = RedisResult<T>>) -> Result<T, Fault> {
    let answer = in_time(one.within, answer).await;
    one.noted(answer.is_ok());
    answer
}

async fn in_time<T>(within: Duration, answer: impl Future<Output = RedisResult<T>>) -> Result<T, Fault> {
    match tokio::time::timeout(within, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Fault::Silent(within)),
    }
}

/// Milliseconds until a key expires. What expires at once is not kept.
fn lifetime(left: Duration) -> i64 {
    milliseconds(left).max(1)
}

/// The client of one server. What is wrong with a URL is told together with it, so it is not repeated.
fn server(url: &str) -> Result<Client, BadUrl> {
    Client::open(url).map_err(|_| BadUrl::Form)
}

/// The client of a Cluster, where the URL names one: credentials for all nodes, and the addresses of some of them.
/// Their clients are beside it.
fn cluster(url: &str, within: Duration) -> Result<Option<(ClusterClient, Vec<Client>)>, BadUrl> {
    let (scheme, rest) = url.split_once("://").ok_or(BadUrl::Form)?;
    let Some(scheme) = scheme.strip_suffix(CLUSTER) else { return Ok(None) };
    if !matches!(scheme, "redis" | "rediss") {
        return Err(BadUrl::Form);
    }
    let (credentials, addresses) = match rest.rsplit_once('@') {
        Some((credentials, addresses)) => (format!("{credentials}@"), addresses),
        None => (String::new(), rest),
    };
    let nodes = addresses.trim_end_matches('/').split(',');
    let nodes: Vec<String> = nodes.map(|address| format!("{scheme}://{credentials}{address}")).collect();
    let clients: Result<Vec<Client>, _> = nodes.iter().map(|node| Client::open(node.as_str())).collect();
    let clients = clients.map_err(|_| BadUrl::Form)?;
    let client = ClusterClient::builder(nodes).connection_timeout(CONNECT_WITHIN).response_timeout(within);
    let client = client.build().map_err(|error| BadUrl::Client(error.to_string()))?;
    Ok(Some((client, clients)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn urls_of_servers_and_clusters_are_taken_and_nothing_is_asked() {
        for url in [
            "redis://127.0.0.1:1",
            "redis://user:p%40ss@redis.internal:6380/2",
            "rediss://redis.internal",
            "unix:///run/redis.sock",
            "redis+cluster://10.0.0.1:1",
            "redis+cluster://user:pass@10.0.0.1:1,10.0.0.2:1,redis.internal/",
            "rediss+cluster://10.0.0.1:1",
        ] {
            assert!(Redis::open(url).is_ok(), "{url}");
        }
    }

    #[tokio::test]
    async fn other_urls_are_refused_without_being_repeated() {
        for url in [
            "",
            "redis",
            "redis://",
            "redis://host:port",
            "redis://:hunter2@",
            "http://root:hunter2@host",
            "redis+cluster://",
            "redis+cluster://a:1,,b:1",
            "redis+cluster://root:hunter2@a:1,b:port",
            "unix+cluster:///run/redis.sock",
            "+cluster://a:1",
        ] {
            let Err(error) = Redis::open(url) else { panic!("{url} is taken") };
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
