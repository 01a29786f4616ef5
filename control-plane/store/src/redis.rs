//! A Redis server or Redis Cluster that all gateways share, for state that must be fast and may be lost.
//!
//! Owns: the connections, their address, and the timeouts of answers. Refuses: to store anything whose loss would harm
//! security or money (I-6). Keeps true: opening does not connect, so that a gateway starts while Redis is unavailable;
//! every request gets an answer or an error within [`ANSWER_WITHIN`], or [`ROOM_WITHIN`] under back-pressure; large
//! commands delay no other lane; no error contains a password.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::cluster::{ClusterClient, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::Slot;
use redis::{Client, Cmd, FromRedisValue, RedisResult, ScriptInvocation};

use self::traffic::Traffic;
use crate::clock::milliseconds;

mod answers;
mod briefs;
mod bus;
mod counters;
mod followers;
mod inbox;
mod outbox;
mod sessions;
mod traffic;

pub use answers::RedisAnswers;
pub use briefs::RedisBriefs;
pub use bus::RedisBus;
pub use counters::RedisCounters;
pub use followers::RedisFollowers;
pub use inbox::RedisInbox;
pub use outbox::RedisOutbox;
pub use sessions::RedisDirectory;

/// Timeout of a command; a healthy Redis answers within a millisecond or two. A longer wait would cost the caller more
/// than the answer is worth.
pub const ANSWER_WITHIN: Duration = Duration::from_millis(250);
/// Maximum wait of a command for capacity while too many bytes are in flight.
pub const ROOM_WITHIN: Duration = Duration::from_secs(1);
/// Timeout of one attempt to connect: several fit into the five seconds in which a Redis that has returned is used
/// again.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// Maximum pause between attempts to connect.
const RECONNECT_EVERY: Duration = Duration::from_millis(500);
/// Time without an answer after which a connection is replaced; longer than its client retries by itself.
const REPLACED_AFTER: Duration = Duration::from_secs(4);
/// Error code of a replica that refuses a write. Before Redis 7 it is in the detail of a script's error.
const READ_ONLY: &str = "READONLY";
/// Suffix of the URL scheme of a Cluster, which is followed by several addresses.
const CLUSTER: &str = "+cluster";

/// One gateway's connections to Redis, separated by purpose: large events delay no rate limit, and a silent lane blocks
/// no other.
pub struct Lanes {
    /// Connection for decisions on rate limits.
    pub limits: Redis,
    /// Connection for the directory of sessions, the bus, and the inboxes and followers of calls.
    pub directory: Redis,
    /// Connection for the events of calls, stored answers and records of calls that only read.
    pub events: Redis,
}

impl Lanes {
    /// Creates the lanes, without connecting yet. Needs a running tokio runtime.
    pub fn open(url: &str) -> Result<Lanes, BadUrl> {
        Lanes::open_within(url, ANSWER_WITHIN)
    }

    /// Creates the lanes with another timeout of answers.
    pub fn open_within(url: &str, within: Duration) -> Result<Lanes, BadUrl> {
        let lane = || Redis::open_within(url, within);
        Ok(Lanes { limits: lane()?, directory: lane()?, events: lane()? })
    }
}

/// One lane: a connection that is made at the first request and again whenever it was lost.
#[derive(Clone)]
pub struct Redis {
    endpoint: Endpoint,
    /// Bytes in flight, and whether each shard answers.
    traffic: Arc<Traffic>,
    /// Timeout of an answer.
    within: Duration,
    /// The server, or some nodes of the Cluster, for blocking connections.
    nodes: Arc<[Client]>,
}

#[derive(Clone)]
enum Endpoint {
    Single(Arc<SingleServer>),
    Cluster(ClusterConnection),
}

/// A single server. Keeps true: a connection without an answer for [`REPLACED_AFTER`] is replaced, whatever the reason,
/// because its client gives up if authentication fails, and stays with a server that is gone; so is one to a server that
/// has become a replica, even if that answers reads.
struct SingleServer {
    client: Client,
    within: Duration,
    manager: Mutex<ConnectionManager>,
    failures: Mutex<Failures>,
}

/// Failures of a connection.
#[derive(Default)]
struct Failures {
    /// Time of the first failure since the last answer.
    failing_since: Option<Instant>,
    /// Time of the first write that the server refused as a replica.
    replica_since: Option<Instant>,
}

impl Failures {
    /// Adds the outcome of a request; returns whether the connection must be replaced now.
    fn add<T>(&mut self, answer: &Result<T>, now: Instant) -> bool {
        let since = match answer {
            Ok(_) => {
                self.failing_since = None;
                return false;
            }
            Err(fault) if fault.is_of_replica() => &mut self.replica_since,
            Err(_) => &mut self.failing_since,
        };
        let is_due = now.duration_since(*since.get_or_insert(now)) >= REPLACED_AFTER;
        if is_due {
            *self = Failures::default();
        }
        is_due
    }
}

impl SingleServer {
    fn new(client: Client, within: Duration) -> RedisResult<SingleServer> {
        let manager = Mutex::new(SingleServer::connect(&client, within)?);
        Ok(SingleServer { client, within, manager, failures: Mutex::default() })
    }

    /// Creates a connection manager, without connecting yet.
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

    /// Records the outcome of a request.
    fn noted<T>(&self, answer: &Result<T>) {
        if self.failures.lock().add(answer, Instant::now()) {
            // Cannot fail, as it succeeded before and does not connect.
            if let Ok(fresh) = SingleServer::connect(&self.client, self.within) {
                *self.manager.lock() = fresh;
            }
        }
    }
}

/// Fault of a Redis URL. Does not repeat the URL, which may hold a password.
#[derive(Debug, thiserror::Error)]
pub enum BadUrl {
    #[error(
        "must be redis[s]://[user:password@]host[:port][/number], redis[s]+cluster://[user:password@]host[:port],… or \
         unix:///path"
    )]
    Form,
    #[error("cannot be used for a Redis client: {0}")]
    Client(String),
}

/// Failure of a request to Redis: no answer, or an error.
#[derive(Debug, thiserror::Error)]
pub enum RedisFault {
    #[error("Redis does not answer within {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("Redis did not answer in time, and is tried again in a moment")]
    Away,
    #[error("too many bytes are in flight to Redis, and it accepted no more within {} ms", ROOM_WITHIN.as_millis())]
    Busy,
    #[error("Redis: {0}")]
    Redis(#[from] redis::RedisError),
}

/// Result of a request to Redis.
type Result<T, E = RedisFault> = std::result::Result<T, E>;

impl RedisFault {
    /// Whether there was no answer; an error from Redis is an answer.
    fn is_silence(&self) -> bool {
        match self {
            RedisFault::Silent(_) => true,
            RedisFault::Redis(error) => error.is_io_error() || error.is_timeout(),
            RedisFault::Away | RedisFault::Busy => false,
        }
    }

    /// Whether the server refused a write because it is a replica.
    fn is_of_replica(&self) -> bool {
        let RedisFault::Redis(error) = self else { return false };
        error.code() == Some(READ_ONLY) || error.detail().is_some_and(|detail| detail.contains(READ_ONLY))
    }
}

/// Checks whether a URL is valid for Redis, without connecting.
pub fn check(url: &str) -> Result<(), BadUrl> {
    match cluster(url, ANSWER_WITHIN)? {
        Some(_) => Ok(()),
        None => server(url).map(drop),
    }
}

impl Redis {
    /// Creates a connection, without connecting yet. Needs a running tokio runtime.
    pub fn open(url: &str) -> Result<Redis, BadUrl> {
        Redis::open_within(url, ANSWER_WITHIN)
    }

    /// Creates a connection with another timeout of answers.
    pub fn open_within(url: &str, within: Duration) -> Result<Redis, BadUrl> {
        let (endpoint, nodes) = match cluster(url, within)? {
            Some((client, nodes)) => (
                Endpoint::Cluster(client.get_pending_async_connection_with_config(ClusterConfig::new())),
                nodes,
            ),
            None => {
                let client = server(url)?;
                let single = SingleServer::new(client.clone(), within)
                    .map_err(|error| BadUrl::Client(error.to_string()))?;
                (Endpoint::Single(Arc::new(single)), vec![client])
            }
        };
        Ok(Redis { endpoint, traffic: Arc::default(), within, nodes: nodes.into() })
    }

    /// Returns the shard of a key. In a Cluster each slot counts as one, because only the client knows the node of a slot.
    fn shard(&self, key: &str) -> u64 {
        match self.endpoint {
            Endpoint::Single(_) => 0,
            Endpoint::Cluster(_) => {
                BuildHasherDefault::<DefaultHasher>::default().hash_one(Slot::for_key(key))
            }
        }
    }

    /// Runs a command on a key.
    async fn ask<T: FromRedisValue>(&self, key: &str, command: &Cmd) -> Result<T> {
        self.ask_large(key, command, 0).await
    }

    /// Runs a command of the given number of bytes.
    async fn ask_large<T: FromRedisValue>(&self, key: &str, command: &Cmd, bytes: usize) -> Result<T> {
        let asking = async {
            match &self.endpoint {
                Endpoint::Single(single) => {
                    single_answer(single, command.query_async(&mut single.manager())).await
                }
                Endpoint::Cluster(connection) => {
                    in_time(self.within, command.query_async(&mut connection.clone())).await
                }
            }
        };
        self.traffic.admit(self.shard(key), bytes, asking).await
    }

    /// Runs a script whose keys are all in the slot of `key`.
    async fn run<T: FromRedisValue>(&self, key: &str, invocation: &ScriptInvocation<'_>) -> Result<T> {
        self.run_large(key, invocation, 0).await
    }

    /// Runs a script whose arguments have the given number of bytes.
    async fn run_large<T: FromRedisValue>(
        &self,
        key: &str,
        invocation: &ScriptInvocation<'_>,
        bytes: usize,
    ) -> Result<T> {
        let asking = async {
            match &self.endpoint {
                Endpoint::Single(single) => {
                    single_answer(single, invocation.invoke_async(&mut single.manager())).await
                }
                Endpoint::Cluster(connection) => {
                    in_time(self.within, invocation.invoke_async(&mut connection.clone())).await
                }
            }
        };
        self.traffic.admit(self.shard(key), bytes, asking).await
    }
}

async fn single_answer<T>(single: &SingleServer, answer: impl Future<Output = RedisResult<T>>) -> Result<T> {
    let answer = in_time(single.within, answer).await;
    single.noted(&answer);
    answer
}

async fn in_time<T>(within: Duration, answer: impl Future<Output = RedisResult<T>>) -> Result<T> {
    match tokio::time::timeout(within, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(RedisFault::Silent(within)),
    }
}

/// Returns the milliseconds until a key expires, at least 1, because Redis rejects 0.
fn lifetime(left: Duration) -> i64 {
    milliseconds(left).max(1)
}

/// Returns the client of one server. Its error is not repeated, because it may contain the URL.
fn server(url: &str) -> Result<Client, BadUrl> {
    Client::open(url).map_err(|_| BadUrl::Form)
}

/// Returns the client of a Cluster, and a client for each listed node, if the URL names a Cluster: credentials for all
/// nodes, and the addresses of some of them.
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
    use redis::{ErrorKind, RedisError, ServerErrorKind};

    use super::*;

    fn failed(error: RedisError) -> Result<(), RedisFault> {
        Err(RedisFault::Redis(error))
    }

    #[test]
    fn a_connection_to_a_replica_is_replaced_although_reads_are_answered() {
        let refused = || failed((ErrorKind::Server(ServerErrorKind::ReadOnly), "no writes").into());
        let of_script = || {
            let detail = "call to f_1: -READONLY You can't write against a read only replica.";
            failed((ErrorKind::Server(ServerErrorKind::ResponseError), "error", detail.to_owned()).into())
        };
        let now = Instant::now();
        for refused in [refused(), of_script()] {
            let mut failures = Failures::default();
            assert!(!failures.add(&refused, now), "a failover may be under way");
            assert!(!failures.add(&Ok(()), now));
            assert!(failures.add(&refused, now + REPLACED_AFTER));
            assert!(!failures.add(&refused, now + REPLACED_AFTER), "the next one has its time");
        }
    }

    #[test]
    fn a_connection_is_replaced_if_nothing_is_answered_for_a_while() {
        let silent = || Err::<(), _>(RedisFault::Silent(ANSWER_WITHIN));
        let now = Instant::now();
        let mut failures = Failures::default();
        assert!(!failures.add(&silent(), now));
        assert!(!failures.add(&Ok(()), now));
        assert!(!failures.add(&silent(), now + REPLACED_AFTER), "the first since an answer");
        assert!(failures.add(&silent(), now + 2 * REPLACED_AFTER));
    }

    #[tokio::test]
    async fn keys_of_one_slot_of_a_cluster_are_one_shard_and_a_server_is_one() {
        let cluster = Redis::open("redis+cluster://127.0.0.1:1").unwrap();
        assert_eq!(cluster.shard("asp:limit:{a}:1"), cluster.shard("asp:inbox:{a}"));
        assert_ne!(cluster.shard("asp:limit:{a}:1"), cluster.shard("asp:limit:{b}:1"));
        let server = Redis::open("redis://127.0.0.1:1").unwrap();
        assert_eq!(server.shard("asp:limit:{a}:1"), server.shard("asp:limit:{b}:1"));
    }

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
