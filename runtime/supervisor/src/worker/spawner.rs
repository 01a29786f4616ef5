//! The thread that starts workers.
//!
//! A worker dies with the thread that started it (`PR_SET_PDEATHSIG`), so that none is left when this process is
//! killed; the executor's threads come and go, this one stays.

use std::io;
use std::process::Command;
use std::sync::mpsc;

use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Maximum number of starts that wait for the thread, which takes a millisecond for each.
const WAITING: usize = 64;

#[derive(Clone, Debug)]
pub struct Spawner(mpsc::SyncSender<Order>);

struct Order {
    command: Command,
    answer: oneshot::Sender<io::Result<Child>>,
}

impl Spawner {
    /// Starts the thread; called within the executor, which then reaps the children.
    pub fn start() -> io::Result<Spawner> {
        let (orders, inbox) = mpsc::sync_channel::<Order>(WAITING);
        let executor = Handle::current();
        std::thread::Builder::new().name("spawner".to_owned()).spawn(move || {
            let _within = executor.enter();
            for order in inbox {
                let mut command = tokio::process::Command::from(order.command);
                // Err: the caller is gone; the child is killed with its handle.
                let _ = order.answer.send(command.kill_on_drop(true).spawn());
            }
        })?;
        Ok(Spawner(orders))
    }

    pub async fn spawn(&self, command: Command) -> io::Result<Child> {
        let (answer, child) = oneshot::channel();
        let gone = || io::Error::other("the spawner is busy or gone");
        self.0.try_send(Order { command, answer }).map_err(|_| gone())?;
        child.await.map_err(|_| gone())?
    }
}
