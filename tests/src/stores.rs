//! Real Redis and PostgreSQL, each on a Unix socket in a directory of its own.
//!
//! PostgreSQL refuses to run as root: then it runs as the user `postgres` that its package made.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::process::Process;
use crate::stepped_clock::SteppedClock;
use crate::wait::ErrorDetails;
use crate::{tool, wait};

/// Who owns the database, and may no more than that: the role that the platform has.
pub(crate) const OWNER: &str = "asp";
const SUPERUSER: &str = "postgres";

/// The database that clients use.
const DATABASE: &str = "postgres";
/// A database that nobody uses.
const UNUSED: &str = "template1";

/// Reads every table.
const READ_ALL: &str = "DO $$ DECLARE one RECORD; BEGIN \
     FOR one IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP \
     EXECUTE format('SELECT COUNT(*) FROM public.%I', one.tablename); END LOOP; END $$";
/// Tells that the statements before have ended.
const TELL: &str = "DO $$ BEGIN RAISE NOTICE 'the session holds'; END $$";
/// Lasts longer than any test.
const LAST: &str = "SELECT pg_sleep(86400)";
/// Sessions in [`LAST`].
const HOLDERS: &str = "FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(%'";

/// What PostgreSQL keeps, below its directory.
const DATA: &str = "data";

/// A Redis server without persistence.
pub struct Redis {
    pub process: Process,
    pub socket: PathBuf,
    listens: Listens,
    directory: TempDir,
}

/// Where a Redis server listens beside its socket. An address of its own, so that none is in another's way.
enum Listens {
    Nowhere,
    /// One that is a Cluster; the address is what it tells its clients.
    AsCluster(Ipv4Addr),
    /// One that replicas follow.
    AsMaster(Ipv4Addr),
    /// Nowhere; it follows the master at this address.
    AsReplica(Ipv4Addr),
    WithTls(Ipv4Addr, ServerCertificate),
}

/// Files of a certificate and its key, in PEM.
pub struct ServerCertificate {
    pub chain: PathBuf,
    pub key: PathBuf,
}

/// The ports of a node of a Cluster, for clients and for other nodes.
const CLUSTER_PORTS: [&str; 2] = ["6379", "16379"];
const TLS_PORT: &str = "6380";

impl Redis {
    /// Starts a server and waits until it answers.
    pub async fn start() -> Result<Redis> {
        Redis::of(Listens::Nowhere).await
    }

    /// Starts a node that has all slots of a Cluster, and waits until it serves them. It refuses what is not in one slot, as
    /// larger ones do.
    pub async fn start_cluster() -> Result<Redis> {
        let redis = Redis::of(Listens::AsCluster(loopback())).await?;
        redis.ask("CLUSTER ADDSLOTSRANGE 0 16383").await?;
        let serves = wait::until("the Cluster serves its slots", wait::START, || async {
            redis.ask("GET nothing").await.ok().filter(|answer| answer == "$-1")
        });
        serves.await.with_details(|| redis.process.tail())?;
        Ok(redis)
    }

    /// Starts a server that replicas can follow.
    pub async fn start_master() -> Result<Redis> {
        Redis::of(Listens::AsMaster(loopback())).await
    }

    /// Starts a replica of a server that was started as a master, and waits until it follows.
    pub async fn replica(&self) -> Result<Redis> {
        let Listens::AsMaster(address) = self.listens else { bail!("it was not started as a master") };
        let replica = Redis::of(Listens::AsReplica(address)).await?;
        let follows = wait::until("the replica follows", wait::START, || async {
            self.ask("WAIT 1 1000").await.ok().filter(|answer| answer == ":1")
        });
        follows.await.with_details(|| replica.process.tail())?;
        Ok(replica)
    }

    /// Makes this replica the master, at the address of one that has ended: clients find it where that one was.
    pub async fn take_the_place_of(&mut self, ended: &Redis) -> Result<()> {
        let answer = self.ask("REPLICAOF NO ONE").await?;
        if answer != "+OK" {
            bail!("the replica stays one: {answer}");
        }
        fs::rename(&self.socket, &ended.socket)?;
        self.socket.clone_from(&ended.socket);
        Ok(())
    }

    /// Starts a server that takes connections over TLS, with a certificate for the address that it is given.
    pub async fn start_with_tls(
        certificate: impl FnOnce(Ipv4Addr) -> Result<ServerCertificate>,
    ) -> Result<Redis> {
        let address = loopback();
        Redis::of(Listens::WithTls(address, certificate(address)?)).await
    }

    async fn of(listens: Listens) -> Result<Redis> {
        let directory = tempfile::tempdir()?;
        let socket = directory.path().join("redis.sock");
        let process = Process::start("redis", serve_redis(directory.path(), &socket, &listens)?)?;
        let redis = Redis { process, socket, listens, directory };
        redis.answers().await?;
        Ok(redis)
    }

    /// Starts it once more, with nothing in it, after its process has ended.
    pub async fn start_again(&mut self) -> Result<()> {
        let command = serve_redis(self.directory.path(), &self.socket, &self.listens)?;
        self.process = Process::start("redis", command)?;
        self.answers().await
    }

    /// What a client gives as `ASP_REDIS_URL`.
    pub fn url(&self) -> String {
        match &self.listens {
            Listens::Nowhere | Listens::AsMaster(_) | Listens::AsReplica(_) => {
                format!("unix://{}", self.socket.display())
            }
            Listens::AsCluster(address) => format!("redis+cluster://{address}:{}", CLUSTER_PORTS[0]),
            Listens::WithTls(address, _) => format!("rediss://{address}:{TLS_PORT}"),
        }
    }

    async fn answers(&self) -> Result<()> {
        let answers = wait::until("Redis answers", wait::START, || async {
            self.ask("PING").await.ok().filter(|answer| answer == "+PONG")
        });
        answers.await.with_details(|| self.process.tail())?;
        Ok(())
    }

    /// Sends one inline command and returns the first line of the reply.
    pub async fn ask(&self, command: &str) -> Result<String> {
        let mut stream = UnixStream::connect(&self.socket).await?;
        stream.write_all(format!("{command}\r\n").as_bytes()).await?;
        let mut reply = Vec::new();
        while !reply.ends_with(b"\r\n") {
            if stream.read_buf(&mut reply).await? == 0 {
                bail!("Redis closed the connection");
            }
        }
        Ok(String::from_utf8(reply)?.trim_end().to_owned())
    }
}

/// A PostgreSQL server with one empty database.
pub struct Postgres {
    pub process: Process,
    clock: Option<SteppedClock>,
    directory: TempDir,
}

impl Postgres {
    /// Makes a cluster, starts its server and waits until it answers.
    pub async fn start() -> Result<Postgres> {
        Postgres::start_in(tempfile::tempdir()?, None).await
    }

    /// The same; its clock can be stepped.
    pub async fn start_with_own_clock() -> Result<Postgres> {
        let directory = tempfile::tempdir()?;
        let clock = SteppedClock::make(directory.path()).await?;
        Postgres::start_in(directory, Some(clock)).await
    }

    async fn start_in(directory: TempDir, clock: Option<SteppedClock>) -> Result<Postgres> {
        let owner = owner()?;
        if let Some((uid, gid)) = owner {
            chown(directory.path(), Some(uid), Some(gid))?;
        }
        let data = directory.path().join(DATA);
        let mut make = command("initdb", owner)?;
        make.args(["--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8", "--username", SUPERUSER]);
        let made = make.arg("-D").arg(&data).kill_on_drop(true).output().await?;
        if !made.status.success() {
            bail!("initdb: {}", String::from_utf8_lossy(&made.stderr));
        }
        let process = Process::start("postgres", serve_postgres(directory.path(), clock.as_ref())?)?;
        let postgres = Postgres { process, clock, directory };
        postgres.answers().await?;
        let owned = format!("CREATE ROLE {OWNER} LOGIN; ALTER DATABASE {DATABASE} OWNER TO {OWNER}");
        postgres.ask(&owned).await?;
        Ok(postgres)
    }

    /// Starts it once more, with what was in it, after its process has ended.
    pub async fn start_again(&mut self) -> Result<()> {
        let command = serve_postgres(self.directory.path(), self.clock.as_ref())?;
        self.process = Process::start("postgres", command)?;
        self.answers().await
    }

    /// Steps the clock of a server that has one of its own: from now on it is so many seconds ahead of this machine's, or behind
    /// it where negative.
    pub fn step_clock(&self, seconds_ahead: i64) -> Result<()> {
        self.clock.as_ref().context("a server with a clock of its own")?.set(seconds_ahead)
    }

    async fn answers(&self) -> Result<()> {
        let answers = wait::until("PostgreSQL answers", wait::START, || async {
            self.ask("SELECT 1").await.ok().filter(|answer| answer == "1")
        });
        answers.await.with_details(|| self.process.tail())?;
        Ok(())
    }

    /// What a client gives as `ASP_DATABASE_URL`.
    pub fn url(&self) -> String {
        self.url_of(OWNER, DATABASE)
    }

    fn url_of(&self, user: &str, database: &str) -> String {
        let host = self.directory.path().display().to_string().replace('/', "%2F");
        format!("postgres://{user}@{host}/{database}")
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join(".s.PGSQL.5432")
    }

    /// Runs a statement with `psql`, as the superuser, and returns its bare output.
    pub async fn ask(&self, statement: &str) -> Result<String> {
        self.psql(DATABASE, &["-A", "-t", "-c", statement]).await
    }

    /// Starts a session that reads every table in one transaction and keeps its snapshot.
    pub async fn open_snapshot(&self) -> Result<Process> {
        self.hold(&["BEGIN ISOLATION LEVEL REPEATABLE READ", READ_ALL]).await
    }

    /// Starts a session that keeps a table locked against any use.
    pub async fn lock_table(&self, table: &str) -> Result<Process> {
        self.hold(&["BEGIN", &format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")]).await
    }

    /// Number of transactions that began since the oldest snapshot of those sessions; 0 without one.
    pub async fn snapshot_age(&self) -> Result<u64> {
        let age = self.ask(&format!("SELECT COALESCE(MAX(age(backend_xmin)), 0) {HOLDERS}")).await?;
        age.parse().with_context(|| format!("{age:?} is no age"))
    }

    /// Ends those sessions. PostgreSQL does not notice by itself that their clients are gone.
    pub async fn end_holders(&self) -> Result<()> {
        self.ask(&format!("SELECT pg_terminate_backend(pid) {HOLDERS}")).await.map(drop)
    }

    async fn hold(&self, statements: &[&str]) -> Result<Process> {
        let mut command = Command::new(tool::postgres()?.join("psql"));
        command.args(["-X", "-v", "ON_ERROR_STOP=1", "-d", &self.url_of(SUPERUSER, DATABASE)]);
        for statement in statements.iter().chain(&[TELL, LAST]) {
            command.args(["-c", *statement]);
        }
        let session = Process::start("psql", command)?;
        session.logged("the session holds").await?;
        Ok(session)
    }

    async fn psql(&self, database: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(tool::postgres()?.join("psql"));
        command
            .args(["-X", "-v", "ON_ERROR_STOP=1", "-d", &self.url_of(SUPERUSER, database)])
            .args(arguments);
        let output = command.kill_on_drop(true).output().await?;
        if !output.status.success() {
            bail!("psql: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// A backup of all of it, as statements.
    pub async fn dump(&self) -> Result<Vec<u8>> {
        let mut command = Command::new(tool::postgres()?.join("pg_dump"));
        command.args(["--clean", "--if-exists", "-d", &self.url_of(SUPERUSER, DATABASE)]).kill_on_drop(true);
        let output = command.output().await?;
        if !output.status.success() {
            bail!("pg_dump: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(output.stdout)
    }

    /// Puts a backup in the place of what there is, while others are connected, as `docs/operations.md` says.
    pub async fn restore(&self, backup: &[u8]) -> Result<()> {
        let file = self.directory.path().join("backup.sql");
        std::fs::write(&file, backup)?;
        self.psql(UNUSED, &["-c", &format!("CREATE DATABASE restored OWNER {OWNER}")]).await?;
        self.psql("restored", &["-1", "-f", &file.display().to_string()]).await?;
        let replace = format!(
            "ALTER DATABASE {DATABASE} ALLOW_CONNECTIONS false;
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{DATABASE}';
             ALTER DATABASE {DATABASE} RENAME TO replaced;
             ALTER DATABASE restored RENAME TO {DATABASE};"
        );
        std::fs::write(&file, replace)?;
        self.psql(UNUSED, &["-f", &file.display().to_string()]).await.map(drop)
    }
}

fn loopback() -> Ipv4Addr {
    let [a, b, c]: [u8; 3] = rand::random();
    // Not 127.0.0.1, where everything else listens.
    Ipv4Addr::new(127, a.max(1), b, c.clamp(1, 254))
}

fn serve_redis(directory: &Path, socket: &Path, listens: &Listens) -> Result<Command> {
    let mut command = Command::new(tool::redis()?);
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(directory);
    command.arg("--unixsocket").arg(socket);
    match listens {
        Listens::Nowhere => command.args(["--port", "0"]),
        Listens::AsCluster(address) => {
            let address = address.to_string();
            let [clients, bus] = CLUSTER_PORTS;
            command.args(["--bind", &address, "--port", clients, "--cluster-port", bus]);
            command.args(["--cluster-enabled", "yes", "--cluster-announce-ip", &address])
        }
        Listens::AsMaster(address) => {
            command.args(["--bind", &address.to_string(), "--port", CLUSTER_PORTS[0]]);
            command.args(["--repl-diskless-sync-delay", "0"])
        }
        Listens::AsReplica(master) => {
            command.args(["--port", "0", "--replicaof", &master.to_string(), CLUSTER_PORTS[0]])
        }
        Listens::WithTls(address, certificate) => {
            command.args(["--bind", &address.to_string(), "--port", "0", "--tls-port", TLS_PORT]);
            command.args(["--tls-auth-clients", "no", "--tls-cert-file"]).arg(&certificate.chain);
            command.arg("--tls-key-file").arg(&certificate.key)
        }
    };
    Ok(command)
}

fn serve_postgres(directory: &Path, clock: Option<&SteppedClock>) -> Result<Command> {
    let mut serve = command("postgres", owner()?)?;
    serve.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c"]);
    serve.arg(format!("unix_socket_directories={}", directory.display())).arg("-D").arg(directory.join(DATA));
    serve.envs(clock.into_iter().flat_map(SteppedClock::environment));
    Ok(serve)
}

fn command(program: &str, owner: Option<(u32, u32)>) -> Result<Command> {
    let mut command = Command::new(tool::postgres()?.join(program));
    if let Some((uid, gid)) = owner {
        command.uid(uid).gid(gid);
    }
    // Its own directory may be one the other user cannot enter.
    command.current_dir("/");
    Ok(command)
}

/// User and group of the server, when this process is root.
fn owner() -> Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string(Path::new("/etc/passwd"))?;
    let line = users.lines().find(|line| line.starts_with("postgres:"));
    let fields: Vec<&str> =
        line.context("there is no user postgres; its package makes it")?.split(':').collect();
    match fields.as_slice() {
        [_, _, uid, gid, ..] => Ok(Some((uid.parse()?, gid.parse()?))),
        _ => bail!("/etc/passwd: the line of postgres is broken"),
    }
}
