//! A real Kafka: one broker that is its own controller, and a client that makes topics and produces.
//!
//! Keeps true: it listens at a loopback address of its own, and keeps nothing after its directory.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::process::Process;
use crate::tool;
use crate::wait::ErrorDetails;

const PORTS: [u16; 2] = [9092, 9093];
/// Any id of 16 bytes in base64.
const CLUSTER: &str = "MkU3OEVBNTcwNTJENDM2Qg";
/// Hang guard for an answer: the client itself waits for a broker that starts.
const ANSWER: Duration = Duration::from_secs(120);
/// Short lives, in which a better compiler does not pay back.
const JAVA: [&str; 3] = ["-Xms64m", "-Xmx384m", "-XX:TieredStopAtLevel=1"];

/// A running broker.
pub struct Kafka {
    pub process: Process,
    pub address: SocketAddr,
    client: Mutex<Client>,
    directory: TempDir,
}

impl Kafka {
    /// Starts a broker with one topic of one partition.
    pub async fn start(topic: &str) -> Result<Kafka> {
        let directory = tempfile::tempdir()?;
        let [a, b, c]: [u8; 3] = rand::random();
        let host = Ipv4Addr::new(127, a.max(1), b, c.clamp(1, 254));
        let address = SocketAddr::from((host, PORTS[0]));
        std::fs::write(directory.path().join("settings"), settings(host, directory.path()))?;
        format(directory.path()).await?;
        let process = Process::start("kafka", serve(directory.path())?)?;
        let client = Mutex::new(Client::start(address)?);
        let kafka = Kafka { process, address, client, directory };
        let made = kafka.ask(&format!("make {topic} 1")).await;
        made.with_details(|| kafka.process.tail())?;
        Ok(kafka)
    }

    /// Starts it once more, with what was in it, after its process has ended, and waits until it answers.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process = Process::start("kafka", serve(self.directory.path())?)?;
        let answered = self.ask("nodes").await.map(drop);
        answered.with_details(|| self.process.tail())
    }

    /// Produces a message and returns its offset.
    pub async fn send(&self, topic: &str, message: &str) -> Result<u64> {
        self.ask(&format!("send {topic} {message}")).await
    }

    /// The offset that a group has committed; 0 for none.
    pub async fn committed(&self, group: &str, topic: &str) -> Result<u64> {
        self.ask(&format!("committed {group} {topic}")).await
    }

    async fn ask(&self, command: &str) -> Result<u64> {
        self.client.lock().await.ask(command).await.with_context(|| command.to_owned())
    }
}

/// A client: one command a line, one answer a line.
struct Client {
    /// Ends with the client.
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Client {
    fn start(broker: SocketAddr) -> Result<Client> {
        let mut command = java()?;
        command.arg(tool::root()?.join("tests/services/kafka/Topic.java")).arg(broker.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().context("start the client of Kafka")?;
        let input = child.stdin.take().context("its input")?;
        let output = BufReader::new(child.stdout.take().context("its output")?).lines();
        Ok(Client { _child: child, input, output })
    }

    async fn ask(&mut self, command: &str) -> Result<u64> {
        ensure!(!command.contains('\n'), "a command is one line");
        self.input.write_all(format!("{command}\n").as_bytes()).await?;
        self.input.flush().await?;
        let answer = timeout(ANSWER, self.output.next_line()).await.context("no answer")??;
        let answer = answer.context("the client has ended")?;
        match answer.split_once(' ') {
            Some(("ok", number)) => Ok(number.parse()?),
            _ => bail!("{answer}"),
        }
    }
}

fn java() -> Result<Command> {
    let mut command = Command::new("java");
    command.args(JAVA).arg("-cp").arg(tool::kafka()?.join("*"));
    Ok(command)
}

fn serve(directory: &Path) -> Result<Command> {
    let mut command = java()?;
    command.arg("kafka.Kafka").arg(directory.join("settings")).current_dir(directory);
    Ok(command)
}

/// Makes the broker's directory.
async fn format(directory: &Path) -> Result<()> {
    let mut command = java()?;
    command.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"]).arg(directory.join("settings"));
    let done = command.current_dir(directory).stdin(Stdio::null()).kill_on_drop(true).output().await?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    Ok(())
}

fn settings(host: Ipv4Addr, directory: &Path) -> String {
    let [broker, controller] = PORTS.map(|port| SocketAddr::from((host, port)));
    let data = directory.join("data");
    format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@{controller}\n\
         listeners=BROKER://{broker},CONTROLLER://{controller}\n\
         advertised.listeners=BROKER://{broker}\n\
         listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         inter.broker.listener.name=BROKER\n\
         controller.listener.names=CONTROLLER\n\
         log.dirs={}\n\
         offsets.topic.replication.factor=1\n\
         offsets.topic.num.partitions=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\n\
         auto.create.topics.enable=false\n",
        data.display()
    )
}
