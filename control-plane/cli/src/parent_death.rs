//! Child processes that the kernel ends when this process dies, however it dies.
//!
//! Keeps true: a child outlives the thread that asked for it, but never [`Starter`]'s thread nor this process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc;

use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Asks the kernel to kill the child when the thread that starts it ends (prctl(2), PR_SET_PDEATHSIG): for a thread that waits
/// for it. The threads of a runtime come and go ([`Starter`]).
#[allow(unsafe_code)] // `pre_exec` is unsafe; its closure makes one async-signal-safe system call
pub(crate) fn die_with_parent(command: &mut Command) {
    // SAFETY: prctl(2) is async-signal-safe, and the closure neither allocates nor locks.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

/// A thread that starts children and stays: they are killed when this is dropped.
pub(crate) struct Starter(mpsc::Sender<Order>);

struct Order {
    command: Command,
    answer: oneshot::Sender<io::Result<Child>>,
}

impl Starter {
    /// Called within the runtime, which then reaps the children.
    pub(crate) fn new() -> io::Result<Starter> {
        let (orders, inbox) = mpsc::channel::<Order>();
        let runtime = Handle::current();
        std::thread::Builder::new().name("starter".to_owned()).spawn(move || {
            let _within = runtime.enter();
            for Order { mut command, answer } in inbox {
                die_with_parent(&mut command);
                let mut command = tokio::process::Command::from(command);
                // Err: nobody waits any more; the child is killed with its handle.
                let _ = answer.send(command.kill_on_drop(true).spawn());
            }
        })?;
        Ok(Starter(orders))
    }

    pub(crate) async fn start(&self, command: Command) -> io::Result<Child> {
        let (answer, child) = oneshot::channel();
        let gone = || io::Error::other("the thread that starts processes is gone");
        self.0.send(Order { command, answer }).map_err(|_| gone())?;
        child.await.map_err(|_| gone())?
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A runtime's threads end while what they asked for goes on.
    #[tokio::test]
    async fn a_child_outlives_the_thread_that_asked_for_it_and_not_its_starter() {
        let starter = Starter::new().unwrap();
        let runtime = Handle::current();
        let (mut child, starter) = std::thread::spawn(move || {
            let mut sleep = Command::new("sleep");
            sleep.arg("600");
            (runtime.block_on(starter.start(sleep)).unwrap(), starter)
        })
        .join()
        .unwrap();
        // The signal would have been sent as the thread ended, and a child that was killed is seen at the first wait.
        let early = tokio::time::timeout(Duration::from_millis(200), child.wait()).await;
        assert!(early.is_err(), "{early:?}");
        drop(starter);
        let ended = tokio::time::timeout(Duration::from_secs(30), child.wait()).await.unwrap().unwrap();
        assert!(!ended.success(), "{ended}");
    }
}
