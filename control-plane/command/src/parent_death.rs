//! Child processes that the kernel kills when this process dies, for whatever reason.
//!
//! Keeps true: a child may outlive the thread that requested it, but never [`Starter`]'s thread or this process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc;

use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Has the kernel kill the child when the thread that starts it ends (prctl(2), PR_SET_PDEATHSIG). Use it on a thread
/// that waits for the child; the threads of an async runtime may end earlier, see [`Starter`].
#[allow(unsafe_code)] // `pre_exec` is unsafe; its closure makes one async-signal-safe system call
pub fn die_with_parent(command: &mut Command) {
    // SAFETY: prctl(2) is async-signal-safe, and the closure neither allocates nor locks.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

/// A long-lived thread that starts children, which are killed when it is dropped.
pub struct Starter(mpsc::Sender<Order>);

struct Order {
    command: Command,
    answer: oneshot::Sender<io::Result<Child>>,
}

impl Starter {
    /// Starts the thread. Must be called within the async runtime, which then reaps the children.
    pub fn new() -> io::Result<Starter> {
        let (orders, inbox) = mpsc::channel::<Order>();
        let runtime = Handle::current();
        std::thread::Builder::new().name("starter".to_owned()).spawn(move || {
            let _within = runtime.enter();
            for Order { mut command, answer } in inbox {
                die_with_parent(&mut command);
                let mut command = tokio::process::Command::from(command);
                // Err: the requester is gone; the child is killed when its handle is dropped.
                let _ = answer.send(command.kill_on_drop(true).spawn());
            }
        })?;
        Ok(Starter(orders))
    }

    pub async fn start(&self, command: Command) -> io::Result<Child> {
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

    /// Threads of an async runtime may end while the children they requested still run.
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
        // The signal would have been sent when the thread ended, and the first wait would see a killed child.
        let early = tokio::time::timeout(Duration::from_millis(200), child.wait()).await;
        assert!(early.is_err(), "{early:?}");
        drop(starter);
        let ended = tokio::time::timeout(Duration::from_secs(30), child.wait()).await.unwrap().unwrap();
        assert!(!ended.success(), "{ended}");
    }
}
