//! A child process: started, its output logged, restarted with backoff, finally stopped.
//!
//! Keeps true: the kernel kills the child when this process dies, for whatever reason; a stop sends SIGTERM, then SIGKILL
//! after [`TERM_GRACE`]; more than [`MAX_DEATHS`] deaths within [`DEATH_WINDOW`] end the stack.

use std::collections::VecDeque;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use asp_command::parent_death::Starter;
use asp_platform::telemetry;
use rand::RngExt;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time between SIGTERM and SIGKILL.
pub const TERM_GRACE: Duration = Duration::from_secs(5);
/// Maximum number of deaths within the window; beyond it the child has a fault that a restart does not fix.
pub const MAX_DEATHS: usize = 5;
pub const DEATH_WINDOW: Duration = Duration::from_secs(60);
/// First and longest pause before a restart.
const BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// Maximum bytes kept of the last line.
const MAX_WORDS: usize = 4096;

/// Receives every line that a child writes; true if it has shown the line, which the log then leaves out.
pub type Listener = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// A program to run.
#[derive(Clone)]
pub struct Program {
    pub name: &'static str,
    pub path: PathBuf,
    pub arguments: Vec<String>,
    /// Variables in addition to those every child gets: PATH, HOME, LANG, TZ.
    pub environment: Vec<(String, String)>,
    pub listener: Option<Listener>,
}

/// Keeps `program` running until `stop` is cancelled; `Err` if it cannot be kept running.
pub async fn supervise(program: Program, stop: CancellationToken) -> anyhow::Result<()> {
    let mut deaths: VecDeque<Instant> = VecDeque::with_capacity(MAX_DEATHS);
    let last_words = LastWords::default();
    let starter = Starter::new().context("start a thread")?;
    loop {
        let mut child = spawn(&program, &starter, &last_words).await?;
        tracing::info!(child = program.name, pid = child.id(), "started");
        let status = tokio::select! {
            () = stop.cancelled() => {
                end(&program, &mut child).await;
                return Ok(());
            }
            status = child.wait() => status.with_context(|| format!("wait for {}", program.name))?,
        };
        tracing::warn!(child = program.name, %status, "died");
        let now = Instant::now();
        deaths.push_back(now);
        deaths.retain(|death| now.duration_since(*death) < DEATH_WINDOW);
        if deaths.len() >= MAX_DEATHS {
            bail!(
                "{} died {} times within {} s (last: {status}): {}",
                program.name,
                deaths.len(),
                DEATH_WINDOW.as_secs(),
                error_line(&last_words.borrow())
            );
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(backoff(deaths.len())) => {}
        }
    }
}

/// Last line that a child wrote to standard error, cut to [`MAX_WORDS`].
type LastWords = Arc<watch::Sender<String>>;

/// Returns the error in a line: the error of the platform's own JSON logs, else the whole line.
fn error_line(line: &str) -> String {
    let parsed: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
    let member = |name: &str| parsed.get(name).and_then(serde_json::Value::as_str);
    let said = member("error").or_else(|| member("fault")).or_else(|| member("message"));
    said.unwrap_or(if line.is_empty() { "it printed nothing" } else { line }).to_owned()
}

/// Returns the pause before a restart: it doubles with each recent death, and half of it is random.
fn backoff(deaths: usize) -> Duration {
    let doubled = BACKOFF.saturating_mul(1 << deaths.min(8)).min(MAX_BACKOFF);
    doubled / 2 + doubled.mul_f64(rand::rng().random_range(0.0..0.5))
}

async fn spawn(program: &Program, starter: &Starter, last_words: &LastWords) -> anyhow::Result<Child> {
    let mut command = Command::new(&program.path);
    command
        .args(&program.arguments)
        .env_clear()
        .envs(
            ["PATH", "HOME", "LANG", "TZ"]
                .into_iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        )
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Keeps a Ctrl-C at the terminal from the children: it reaches only this process, which stops them in order.
        .process_group(0);
    let started = starter.start(command).await;
    let mut child =
        started.with_context(|| format!("start {} ({})", program.name, program.path.display()))?;
    if let Some(stdout) = child.stdout.take() {
        tokio::spawn(log_lines(program.clone(), stdout, LastWords::default()));
    }
    if let Some(stderr) = child.stderr.take() {
        tokio::spawn(log_lines(program.clone(), stderr, Arc::clone(last_words)));
    }
    Ok(child)
}

/// Sends SIGTERM, and SIGKILL if the child does not exit in time.
async fn end(program: &Program, child: &mut Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid
        && let Err(error) = kill_process(pid, Signal::TERM)
    {
        tracing::debug!(child = program.name, %error, "SIGTERM was not delivered");
    }
    match tokio::time::timeout(TERM_GRACE, child.wait()).await {
        Ok(_) => tracing::info!(child = program.name, "stopped"),
        Err(_) => {
            tracing::warn!(child = program.name, "child did not stop on SIGTERM, killing it");
            if let Err(error) = child.kill().await {
                tracing::error!(child = program.name, %error, "child could not be killed");
            }
        }
    }
}

/// Logs each line: the fields of one that is a JSON object, any other as text.
async fn log_lines(program: Program, output: impl AsyncRead + Unpin, last: LastWords) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(mut line)) = lines.next_line().await {
        if !line.trim().is_empty() {
            let is_shown = program.listener.as_ref().is_some_and(|listener| listener(&line));
            if !is_shown && !telemetry::relay(program.name, &line) {
                tracing::info!(child = program.name, line, "output");
            }
            line.truncate(line.floor_char_boundary(MAX_WORDS));
            last.send_replace(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program {
            name: "sample",
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("SAMPLE".into(), "yes".into())],
            listener: None,
        }
    }

    #[tokio::test]
    async fn a_child_that_keeps_dying_ends_the_supervision_with_its_name() {
        let error = tokio::time::timeout(
            Duration::from_secs(60),
            supervise(
                shell("echo '{\"message\":\"m\",\"error\":\"no sandbox\"}' >&2; exit 3"),
                CancellationToken::new(),
            ),
        )
        .await
        .unwrap()
        .unwrap_err();
        let error = error.to_string();
        assert!(error.contains("sample died 5 times") && error.ends_with(": no sandbox"), "{error}");
    }

    #[tokio::test]
    async fn a_stop_ends_the_child_with_sigterm() {
        let dir = tempfile::tempdir().unwrap();
        let ready = dir.path().join("ready");
        let done = dir.path().join("done");
        let script = format!(
            "trap 'echo $SAMPLE > {}; exit 0' TERM; touch {}; while :; do sleep 0.05; done",
            done.display(),
            ready.display()
        );
        let stop = CancellationToken::new();
        let supervision = tokio::spawn(supervise(shell(&script), stop.clone()));
        tokio::time::timeout(Duration::from_secs(30), async {
            while !ready.exists() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .unwrap();
        stop.cancel();
        supervision.await.unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(done).unwrap(), "yes\n");
    }

    #[tokio::test]
    async fn a_program_that_does_not_exist_is_named() {
        let program = Program { path: "/nonexistent/envoy".into(), ..shell("") };
        let error = supervise(program, CancellationToken::new()).await.unwrap_err();
        assert!(error.to_string().contains("/nonexistent/envoy"), "{error}");
    }
}
