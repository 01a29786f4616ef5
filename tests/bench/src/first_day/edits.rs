//! Time until a saved edit takes effect in `asp dev`, for a Python package with 100 MB of libraries beside its code.
//!
//! Keeps true: an edit begins when the file has its new name, as editors save, and ends with the first answer that only the
//! new code gives; a client asks without pause until then.

use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{Connection, Request};
use asp_e2e::process::Process;
use asp_e2e::spread::{Spread, cell};
use asp_e2e::{tool, wait};
use rustix::process::Signal;
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::goal::Goal;
use crate::plan::Plan;
use crate::progress::say;

const SERVER: &str = "greet";
const CODE: &str = "greet/plugins/greet";
const MODERN: &str = "2026-07-28";
/// Word of the scaffold's answer, which each edit replaces.
const FIRST: &str = "Hello,";
const FILES: usize = 2_000;
/// Bytes of each of them; fewer in a quick run.
const BYTES: usize = 50_000;
const QUICK_BYTES: usize = 2_000;
/// Goal of the median, in seconds.
const SOON: f64 = 2.0;
/// Pause between two questions of the client.
const PAUSE: Duration = Duration::from_millis(10);

/// Times of the edits.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Edits {
    /// Files and bytes of the libraries.
    pub files: usize,
    pub bytes: u64,
    /// Time from the start of `asp dev` to the first answer.
    pub started_s: f64,
    /// Time from each saved edit to its effect.
    pub seconds: Vec<f64>,
}

/// A folder with one server, and the command that serves it.
struct Author {
    work: TempDir,
    root: PathBuf,
}

/// A client of the command, as its block for an `mcp.json` says.
struct Client {
    connection: Connection,
    target: String,
    authorization: String,
    /// Questions so far: none has the id of another, which could be answered from a ledger.
    asked: u64,
}

pub(crate) async fn measure(plan: &Plan) -> Result<Edits> {
    let (edits, bytes) = if plan.quick { (1, QUICK_BYTES) } else { (5, BYTES) };
    say("edits in asp dev, with large libraries");
    let author = Author::new().await?;
    let mut found = Edits { files: FILES, ..Edits::default() };
    found.bytes = author.add_libraries(bytes)?;
    let began = Instant::now();
    let mut dev = author.dev()?;
    let told = told(&dev).await?;
    let mut client = Client::of(&told).with_context(|| format!("an entry for {SERVER}: {told}"))?;
    client.hears(FIRST, &mut dev).await?;
    found.started_s = began.elapsed().as_secs_f64();
    let mut from = FIRST.to_owned();
    for edit in 1..=edits {
        say(&format!("edit {edit}/{edits}"));
        let to = format!("Edit {edit},");
        author.edit(&from, &to)?;
        let saved = Instant::now();
        client.hears(&to, &mut dev).await?;
        found.seconds.push(saved.elapsed().as_secs_f64());
        from = to;
    }
    dev.signal(Signal::INT)?;
    let status = dev.wait(wait::START).await?;
    ensure!(status.success(), "asp dev ended with {status}\n{}", dev.tail());
    Ok(found)
}

impl Author {
    async fn new() -> Result<Author> {
        let work = tempfile::tempdir()?;
        let author = Author { root: work.path().join("mine"), work };
        fs::create_dir(author.work.path().join("tmp"))?;
        let mut command = author.asp()?;
        command.args(["plugin", "new", SERVER, "--language", "python"]).arg(&author.root);
        let output = command.output().await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(author)
    }

    /// Returns the command with the languages of this checkout, and nothing of the user's account.
    fn asp(&self) -> Result<Command> {
        let mut command = Command::new(tool::asp()?);
        command.kill_on_drop(true).env_remove("ASP_STATE_DIR");
        command.env("TMPDIR", self.work.path().join("tmp"));
        command.env("XDG_CACHE_HOME", self.work.path().join("cache"));
        command.env("ASP_PLUGIN_PYTHON", tool::plugin_python()?).env("ASP_RUNTIME_BIN", tool::runtime()?);
        Ok(command)
    }

    fn dev(&self) -> Result<Process> {
        let mut command = self.asp()?;
        command.arg("dev").arg(&self.root).args(["--port", "0", "--json"]);
        Process::start("asp dev", command)
    }

    /// Puts libraries beside the code, as `pip install --target site-packages` does, one of which the code imports; returns
    /// their bytes.
    fn add_libraries(&self, bytes: usize) -> Result<u64> {
        let code = self.root.join(CODE);
        let folder = code.join("site-packages/heavy");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("__init__.py"), "")?;
        let written = write_modules(&folder, bytes)?;
        let main = code.join("main.py");
        let text = fs::read_to_string(&main)?;
        let line = "from dataclasses import dataclass\n";
        ensure!(text.contains(line), "the scaffold has no `{line}`: {text}");
        fs::write(main, text.replace(line, &format!("import heavy\n{line}")))?;
        Ok(written)
    }

    /// Replaces a text in the code, as editors do that save by renaming.
    fn edit(&self, from: &str, to: &str) -> Result<()> {
        let path = self.root.join(CODE).join("main.py");
        let text = fs::read_to_string(&path)?;
        ensure!(text.contains(from), "main.py has no `{from}`");
        let beside = path.with_file_name(".swap");
        fs::write(&beside, text.replace(from, to))?;
        Ok(fs::rename(beside, path)?)
    }
}

/// Waits for the line that tells programs how to connect.
async fn told(dev: &Process) -> Result<Value> {
    let line = || async { dev.output().lines().into_iter().find(|line| line.contains("mcpServers")) };
    let line = wait::until("asp dev serves", wait::START, line).await.with_context(|| dev.tail())?;
    Ok(serde_json::from_str(&line)?)
}

/// Writes modules that differ and cannot be compressed to little; returns their bytes.
fn write_modules(folder: &Path, bytes: usize) -> Result<u64> {
    let mut written = 0;
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    for number in 0..FILES {
        let mut text = String::with_capacity(bytes + 32);
        text.push_str("DATA = \"");
        while text.len() < bytes {
            // Marsaglia's xorshift.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            write!(text, "{state:016x}")?;
        }
        text.push_str("\"\n");
        fs::write(folder.join(format!("part_{number:04}.py")), &text)?;
        written += u64::try_from(text.len())?;
    }
    Ok(written)
}

impl Client {
    fn of(told: &Value) -> Option<Client> {
        let entry = told.get("mcpServers")?.get(SERVER)?;
        let (address, path) = entry.get("url")?.as_str()?.strip_prefix("http://")?.split_once('/')?;
        let address: SocketAddr = address.parse().ok()?;
        let authorization = entry.get("headers")?.get("Authorization")?.as_str()?.to_owned();
        Some(Client {
            connection: Connection::to(address),
            target: format!("/{path}"),
            authorization,
            asked: 0,
        })
    }

    /// Asks until an answer has these words; fails with the end of the log.
    async fn hears(&mut self, words: &str, dev: &mut Process) -> Result<()> {
        let deadline = Instant::now() + wait::START;
        loop {
            // While code is exchanged a call may fail.
            let said = match self.ask().await {
                Ok(said) => said,
                Err(error) => format!("{error:#}"),
            };
            if said.contains(words) {
                return Ok(());
            }
            dev.check_alive()?;
            ensure!(Instant::now() < deadline, "no answer with `{words}`, but {said}\n{}", dev.tail());
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn ask(&mut self) -> Result<String> {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": MODERN,
                          "io.modelcontextprotocol/clientCapabilities": {}});
        let params = json!({"name": SERVER, "arguments": {"name": "Ada"}, "_meta": meta});
        self.asked += 1;
        let body = json!({"jsonrpc": "2.0", "id": self.asked, "method": "tools/call", "params": params});
        let headers = [
            ("authorization", self.authorization.as_str()),
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
            ("mcp-protocol-version", MODERN),
            ("mcp-method", "tools/call"),
            ("mcp-name", SERVER),
        ];
        let request = Request {
            method: "POST".into(),
            target: self.target.clone(),
            headers: headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            body: body.to_string().into_bytes(),
        };
        Ok(self.connection.send(&request).await?.text())
    }
}

impl Edits {
    fn spread(&self) -> Option<Spread> {
        Spread::of(self.seconds.iter().copied())
    }

    fn megabytes(&self) -> u64 {
        self.bytes / 1_000_000
    }

    /// Returns the goal; none if nothing was measured.
    pub(crate) fn judge(&self) -> Vec<Goal> {
        let goal = self.spread().map(|taken| Goal {
            goal: format!("an edit in `asp dev` takes effect within {SOON} s, with large libraries"),
            met: taken.median <= SOON,
            figures: format!(
                "{} s, {} edits, {} MB of libraries",
                taken.text(2),
                self.seconds.len(),
                self.megabytes()
            ),
        });
        goal.into_iter().collect()
    }

    /// Writes the section.
    pub(crate) fn render(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n## A saved edit in asp dev\n")?;
        writeln!(
            text,
            "A Python package with {} MB of libraries in {} files beside its code (`site-packages`). Time is from the new name \
             of the saved file to the first answer of the new code; the client asks again {} ms after each answer.\n",
            self.megabytes(),
            self.files,
            PAUSE.as_millis()
        )?;
        writeln!(
            text,
            "| edits | s, median and range | s from `asp dev` to the first answer |\n|---|---|---|"
        )?;
        writeln!(text, "| {} | {} | {:.2} |", self.seconds.len(), cell(self.spread(), 2), self.started_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_edit_takes_effect_soon() {
        let met = |seconds: &[f64]| {
            let found = Edits { seconds: seconds.to_vec(), ..Edits::default() };
            found.judge().iter().map(|goal| goal.met).collect::<Vec<_>>()
        };
        assert_eq!(met(&[1.0, 2.0, 9.0]), [true]);
        assert_eq!(met(&[1.0, 2.1, 9.0]), [false]);
        assert!(met(&[]).is_empty());
    }

    #[test]
    fn a_client_is_what_the_block_says() {
        let told = json!({"mcpServers": {"greet": {
            "url": "http://127.0.0.1:8080/greet/mcp", "headers": {"Authorization": "Bearer t"}}}});
        let client = Client::of(&told).unwrap();
        assert_eq!((client.target.as_str(), client.authorization.as_str()), ("/greet/mcp", "Bearer t"));
        assert!(Client::of(&json!({"mcpServers": {}})).is_none());
    }

    #[test]
    fn modules_have_the_bytes_that_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let written = write_modules(folder.path(), 40).unwrap();
        let first = fs::read_to_string(folder.path().join("part_0000.py")).unwrap();
        assert_eq!(written, u64::try_from(first.len() * FILES).unwrap());
        assert_ne!(first, fs::read_to_string(folder.path().join("part_0001.py")).unwrap());
    }
}
