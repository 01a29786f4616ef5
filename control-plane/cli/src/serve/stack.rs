//! Starts the processes of `--stack` and tells when the whole path answers.

use std::future::Future;
use std::net::SocketAddr;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Process;
use crate::stack::child::{Program, supervise};
use crate::stack::{self, EnvoyPorts, everything, ready};

/// The children and the announcement. Ends early only by a failure.
pub(super) struct Stack {
    tasks: JoinSet<anyhow::Result<()>>,
    stop: CancellationToken,
}

impl Stack {
    /// No stack: never fails, stops at once.
    pub(super) fn none() -> Stack {
        Stack { tasks: JoinSet::new(), stop: CancellationToken::new() }
    }

    pub(super) fn start(process: &Process) -> anyhow::Result<Stack> {
        let mut stack = Stack::none();
        let Some(section) = &process.settings.stack else {
            return Ok(stack);
        };
        let ports =
            EnvoyPorts { edge: process.ports.edge, admin: process.ports.envoy_admin, xds: process.ports.xds };
        stack.keep(stack::envoy(&process.settings, section, ports)?);
        if let Some(program) = everything::program(section, process.ports.everything) {
            stack.keep(program);
        }
        if let Some(runtime) = &process.runtime {
            stack.keep_if_it_works(runtime.program()?);
        }
        let announced = announce(process);
        stack.tasks.spawn(until(stack.stop.clone(), announced));
        Ok(stack)
    }

    fn keep(&mut self, program: Program) {
        self.tasks.spawn(supervise(program, self.stop.clone()));
    }

    /// A program without which the rest still works, such as a runtime on a machine that has no sandbox.
    fn keep_if_it_works(&mut self, program: Program) {
        let name = program.name;
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            if let Err(error) = supervise(program, stop).await {
                tracing::error!(error = format!("{error:#}"), "{name} is off; the rest goes on");
            }
            Ok(())
        });
    }

    /// Waits for a failure.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => return error,
                Some(Err(error)) => return anyhow::Error::new(error),
                None => std::future::pending().await,
            }
        }
    }

    /// Stops every child and waits for it.
    pub(super) async fn end(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            if let Ok(Err(error)) = ended {
                tracing::error!(%error, "stack");
            }
        }
    }
}

async fn until(
    stop: CancellationToken,
    work: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    tokio::select! {
        () = stop.cancelled() => Ok(()),
        done = work => done,
    }
}

fn announce(process: &Process) -> impl Future<Output = anyhow::Result<()>> + 'static {
    let listen = &process.settings.listen;
    let urls = ready::Urls {
        edge: process.public_url.clone(),
        admin: format!("http://{}", SocketAddr::new(listen.admin, process.ports.admin)),
        probe: match process.settings.tls {
            None => format!("http://{}/healthz", SocketAddr::new(listen.bind, process.ports.edge)),
            // Its certificate may be anybody's; Envoy itself says whether its listeners are up.
            Some(_) => format!("http://127.0.0.1:{}/ready", process.ports.envoy_admin),
        },
    };
    let state_dir = process.settings.state_dir.clone();
    let issuer = process.dev_issuer.clone();
    async move {
        ready::wait(&urls).await?;
        if let Some(issuer) = issuer {
            ready::write_env(&state_dir, &urls, &issuer)?;
        }
        ready::announce(&state_dir, &urls);
        Ok(())
    }
}
