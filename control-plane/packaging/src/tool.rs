//! A tool that a build runs, together with the processes it starts.
//!
//! Keeps true: it runs until it exits, exceeds its time limit or is no longer needed; then its whole process group gets
//! SIGTERM, and SIGKILL after [`KILL_AFTER`].

use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use asp_command::parent_death::die_with_parent;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio_util::sync::CancellationToken;

/// Time between SIGTERM and SIGKILL, in which a package manager removes incomplete files.
pub const KILL_AFTER: Duration = Duration::from_secs(2);
/// Options with which npm runs nothing of what it fetches: no install scripts, and no git, because npm installs in a fetched
/// repository, whose `.npmrc` may name a program as git. Versions of npm before 11.10 do not know `--allow-git`.
pub const NPM_RUNS_NOTHING: [&str; 3] = ["--ignore-scripts", "--allow-git=none", "--git=/dev/null"];
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Maximum bytes of a tool's output that are reported.
const MAX_SAID: u64 = 1 << 20;

/// End of a tool's run.
enum End {
    Own { succeeded: bool },
    TooLong,
    Stopped,
}

/// Runs a tool until it exits, for at most `limit`, or until `stop`; returns the end of its output.
pub fn run(command: &mut Command, name: &str, limit: Duration, stop: &CancellationToken) -> Result<String> {
    if stop.is_cancelled() {
        bail!("{name} was not started because asp stops");
    }
    // A file, unlike a pipe, never fills up, and reading it does not wait for a process that outlives the tool.
    let mut output = tempfile::tempfile().context("create a file for the tool's output")?;
    let share = || output.try_clone().context("share a file");
    // A separate process group can be killed as a whole; the kernel kills its first process if this one dies.
    command.stdin(Stdio::null()).stdout(share()?).stderr(share()?).process_group(0);
    die_with_parent(command);
    let mut child = command.spawn().with_context(|| format!("start {name}; is it installed?"))?;
    let ended = wait(&mut child, limit, stop).with_context(|| format!("wait for {name}"))?;
    let mut said = Vec::new();
    // The end of the output has the reason.
    let from = output.metadata().map_or(0, |metadata| metadata.len().saturating_sub(MAX_SAID));
    let read = output.seek(SeekFrom::Start(from)).and_then(|_| output.take(MAX_SAID).read_to_end(&mut said));
    read.with_context(|| format!("read the output of {name}"))?;
    let said = String::from_utf8_lossy(&said).into_owned();
    match ended {
        End::Own { succeeded: true } => Ok(said),
        End::Own { succeeded: false } => bail!("{name} failed:\n{}", said.trim_end()),
        End::Stopped => bail!("{name} was stopped because asp stops"),
        End::TooLong => {
            let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
            bail!(
                "{name} did not finish within {} s and was stopped; its last output: {last}",
                limit.as_secs()
            )
        }
    }
}

fn wait(child: &mut Child, limit: Duration, stop: &CancellationToken) -> io::Result<End> {
    let deadline = Instant::now() + limit;
    let given_up = loop {
        match child.try_wait()? {
            Some(status) => return Ok(End::Own { succeeded: status.success() }),
            None if stop.is_cancelled() => break End::Stopped,
            None if Instant::now() >= deadline => break End::TooLong,
            None => std::thread::sleep(LOOK_EVERY),
        }
    };
    end(child);
    Ok(given_up)
}

/// Ends the tool and all processes in its group.
fn end(child: &mut Child) {
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    // Err, here and below: it has exited already.
    let _ = kill_process_group(group, Signal::TERM);
    let deadline = Instant::now() + KILL_AFTER;
    // The group exists as long as any process in it; the first one counts until it is reaped.
    while child.try_wait().is_ok_and(|ended| ended.is_none()) || test_kill_process_group(group).is_ok() {
        if Instant::now() >= deadline {
            let _ = kill_process_group(group, Signal::KILL);
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    const BOUND: Duration = Duration::from_secs(30);

    /// A tool that starts another process, writes its id into a file, and waits for it.
    fn tool(pid: &Path, child: &str) -> Command {
        let script =
            format!("{child} & echo $! > {0}.new; mv {0}.new {0}; echo loading; wait", pid.display());
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script);
        shell
    }

    fn until(what: &str, seen: impl Fn() -> bool) {
        let bound = Instant::now() + BOUND;
        while !seen() {
            assert!(Instant::now() < bound, "{what}");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// A killed process remains for a moment, and as a zombie until its parent reaps it.
    fn ends(pid: &Path) {
        let stat = format!("/proc/{}/stat", fs::read_to_string(pid).unwrap().trim());
        let is_gone = || !fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        until("what the tool started still runs", is_gone);
    }

    #[test]
    fn a_tool_that_hangs_is_ended_with_what_it_started_and_named() {
        let work = tempfile::tempdir().unwrap();
        let pid = work.path().join("pid");
        let never = CancellationToken::new();
        let limit = Duration::from_secs(2);
        let error = run(&mut tool(&pid, "sleep 600"), "mvn", limit, &never).unwrap_err().to_string();
        assert_eq!(error, "mvn did not finish within 2 s and was stopped; its last output: loading");
        ends(&pid);
    }

    #[test]
    fn a_tool_that_nobody_wants_any_more_is_ended_with_what_it_started_even_if_that_ignores_it() {
        let work = tempfile::tempdir().unwrap();
        let tidied: PathBuf = work.path().join("tidied");
        let tidies =
            format!("sh -c 'trap \"touch {}; exit\" TERM; while :; do sleep 0.05; done'", tidied.display());
        for child in [tidies.as_str(), "sh -c 'trap \"\" TERM; while :; do sleep 0.05; done'"] {
            let pid = work.path().join("pid");
            let stop = CancellationToken::new();
            let mut asked = tool(&pid, child);
            let error = std::thread::scope(|scope| {
                let running = scope.spawn(|| run(&mut asked, "npm", BOUND * 20, &stop));
                until("it started nothing", || pid.exists());
                stop.cancel();
                running.join().unwrap().unwrap_err().to_string()
            });
            assert_eq!(error, "npm was stopped because asp stops");
            ends(&pid);
            fs::remove_file(&pid).unwrap();
            let error = run(&mut tool(&pid, child), "npm", BOUND, &stop).unwrap_err().to_string();
            assert_eq!(error, "npm was not started because asp stops");
            assert!(!pid.exists());
        }
        assert!(tidied.exists(), "it was not asked before it was killed");
    }

    #[test]
    fn what_a_tool_that_fails_said_is_told() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo out; echo err >&2; exit 1"]);
        let failed = run(&mut shell, "javac", BOUND, &CancellationToken::new()).unwrap_err();
        assert_eq!(failed.to_string(), "javac failed:\nout\nerr");
    }
}
