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
use crate::{tool, wait};

/// Database superuser and database of a [`Postgres`].
const OWNER: &str = "asp";

/// What PostgreSQL keeps, below its directory.
const DATA: &str = "data";

/// A Redis server without persistence.
pub struct Redis {
    pub process: Process,
    pub socket: PathBuf,
    /// Of one that is a Cluster: the address that it tells its clients.
    cluster: Option<Ipv4Addr>,
    directory: TempDir,
}

/// The ports of a node of a Cluster, for clients and for other nodes. Each has a loopback address of its own, so none of
/// them is in another's way.
const CLUSTER_PORTS: [&str; 2] = ["6379", "16379"];

impl Redis {
    /// Starts a server and waits until it answers.
    pub async fn start() -> Result<Redis> {
        Redis::of(None).await
    }

    /// Starts a node that has all slots of a Cluster, and waits until it serves them. It refuses what is not in one slot, as
    /// larger ones do.
    pub async fn start_cluster() -> Result<Redis> {
        let [a, b, c] = rand::random();
        let redis = Redis::of(Some(Ipv4Addr::new(127, a, b, c.clamp(1, 254)))).await?;
        redis.ask("CLUSTER ADDSLOTSRANGE 0 16383").await?;
        let serves = wait::until("the Cluster serves its slots", wait::START, || async {
            redis.ask("GET nothing").await.ok().filter(|answer| answer == "$-1")
        });
        serves.await.with_context(|| redis.process.tail())?;
        Ok(redis)
    }

    async fn of(cluster: Option<Ipv4Addr>) -> Result<Redis> {
        let directory = tempfile::tempdir()?;
        let socket = directory.path().join("redis.sock");
        let process = Process::start("redis", serve_redis(directory.path(), &socket, cluster)?)?;
        let redis = Redis { process, socket, cluster, directory };
        redis.answers().await?;
        Ok(redis)
    }

    /// Starts it once more, with nothing in it, after its process has ended.
    pub async fn start_again(&mut self) -> Result<()> {
        let command = serve_redis(self.directory.path(), &self.socket, self.cluster)?;
        self.process = Process::start("redis", command)?;
        self.answers().await
    }

    /// What a client gives as `ASP_REDIS_URL`.
    pub fn url(&self) -> String {
        match &self.cluster {
            Some(address) => format!("redis+cluster://{address}:{}", CLUSTER_PORTS[0]),
            None => format!("unix://{}", self.socket.display()),
        }
    }

    async fn answers(&self) -> Result<()> {
        let answers = wait::until("Redis answers", wait::START, || async {
            self.ask("PING").await.ok().filter(|answer| answer == "+PONG")
        });
        answers.await.with_context(|| self.process.tail())?;
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
    directory: TempDir,
}

impl Postgres {
    /// Makes a cluster, starts its server and waits until it answers.
    pub async fn start() -> Result<Postgres> {
        let directory = tempfile::tempdir()?;
        let owner = owner()?;
        if let Some((uid, gid)) = owner {
            chown(directory.path(), Some(uid), Some(gid))?;
        }
        let data = directory.path().join(DATA);
        let mut make = command("initdb", owner)?;
        make.args(["--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8", "--username", OWNER]);
        let made = make.arg("-D").arg(&data).kill_on_drop(true).output().await?;
        if !made.status.success() {
            bail!("initdb: {}", String::from_utf8_lossy(&made.stderr));
        }
        let process = Process::start("postgres", serve_postgres(directory.path())?)?;
        let postgres = Postgres { process, directory };
        postgres.answers().await?;
        Ok(postgres)
    }

    /// Starts it once more, with what was in it, after its process has ended.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process = Process::start("postgres", serve_postgres(self.directory.path())?)?;
        self.answers().await
    }

    async fn answers(&self) -> Result<()> {
        let answers = wait::until("PostgreSQL answers", wait::START, || async {
            self.ask("SELECT 1").await.ok().filter(|answer| answer == "1")
        });
        answers.await.with_context(|| self.process.tail())?;
        Ok(())
    }

    /// What a client gives as `ASP_DATABASE_URL`.
    pub fn url(&self) -> String {
        let host = self.directory.path().display().to_string().replace('/', "%2F");
        format!("postgres://{OWNER}@{host}/postgres")
    }

    /// Runs one statement with `psql` and returns its bare output.
    pub async fn ask(&self, statement: &str) -> Result<String> {
        let mut command = Command::new(tool::postgres()?.join("psql"));
        command.args(["-X", "-A", "-t", "-d", &self.url(), "-c", statement]).kill_on_drop(true);
        let output = command.output().await?;
        if !output.status.success() {
            bail!("psql: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// A backup of all of it, as statements.
    pub async fn dump(&self) -> Result<Vec<u8>> {
        let mut command = Command::new(tool::postgres()?.join("pg_dump"));
        command.args(["--clean", "--if-exists", "-d", &self.url()]).kill_on_drop(true);
        let output = command.output().await?;
        if !output.status.success() {
            bail!("pg_dump: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(output.stdout)
    }

    /// Puts a backup in the place of what there is, while others are connected.
    pub async fn restore(&self, backup: &[u8]) -> Result<()> {
        let file = self.directory.path().join("backup.sql");
        std::fs::write(&file, backup)?;
        let mut command = Command::new(tool::postgres()?.join("psql"));
        command.args(["-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", "-d", &self.url(), "-f"]).arg(&file);
        let output = command.kill_on_drop(true).output().await?;
        if !output.status.success() {
            bail!("psql: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}

fn serve_redis(directory: &Path, socket: &Path, cluster: Option<Ipv4Addr>) -> Result<Command> {
    let mut command = Command::new(tool::redis()?);
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(directory);
    command.arg("--unixsocket").arg(socket);
    match cluster {
        None => command.args(["--port", "0"]),
        Some(address) => {
            let address = address.to_string();
            let [clients, bus] = CLUSTER_PORTS;
            command.args(["--bind", &address, "--port", clients, "--cluster-port", bus]);
            command.args(["--cluster-enabled", "yes", "--cluster-announce-ip", &address])
        }
    };
    Ok(command)
}

fn serve_postgres(directory: &Path) -> Result<Command> {
    let mut serve = command("postgres", owner()?)?;
    serve.args(["-c", "listen_addresses=", "-c", "fsync=off", "-c"]);
    serve.arg(format!("unix_socket_directories={}", directory.display())).arg("-D").arg(directory.join(DATA));
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
