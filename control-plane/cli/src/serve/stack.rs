//! Starts the processes of `--stack` and announces when the whole path answers.

use std::future::Future;
use std::sync::Arc;

use asp_command::print;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Process;
use super::announce::announce;
use super::standing::RuntimeFailure;
use crate::stack::child::{Listener, Program, supervise};
use crate::stack::plugins::MissingPlugin;
use crate::stack::{self, EnvoyPorts, everything};

/// The child processes and the announcement. A task ends early only with a failure.
pub(super) struct Stack {
    tasks: JoinSet<anyhow::Result<()>>,
    stop: CancellationToken,
    died: RuntimeFailure,
}

impl Stack {
    /// Returns an empty stack, which stops at once.
    pub(super) fn none() -> Stack {
        Stack { tasks: JoinSet::new(), stop: CancellationToken::new(), died: RuntimeFailure::default() }
    }

    /// Starts the stack. `not_installed`: plugins to report in the announcement; `listener`: additional receiver of the
    /// runtime's output.
    pub(super) fn start(
        process: &Process,
        not_installed: Vec<MissingPlugin>,
        listener: Option<Listener>,
    ) -> anyhow::Result<Stack> {
        let mut stack = Stack::none();
        let Some(section) = &process.settings.stack else {
            let settings = &process.settings;
            if settings.dev && settings.roles.control && settings.roles.gateway {
                stack.until_stopped(announce(process, not_installed, stack.died()));
            }
            return Ok(stack);
        };
        if let Some(envoy) = &section.envoy {
            let ports = EnvoyPorts {
                edge: process.ports.edge,
                admin: process.ports.envoy_admin,
                xds: process.ports.xds,
            };
            stack.supervise_required(stack::envoy(&process.settings, envoy, ports)?);
        }
        if let Some(program) = everything::program(section, process.ports.everything) {
            stack.supervise_required(program);
        }
        if let Some(runtime) = &process.runtime {
            stack.supervise_optional(Program { listener, ..runtime.program()? });
        }
        if section.envoy.is_some() {
            stack.until_stopped(announce(process, not_installed, stack.died()));
        }
        Ok(stack)
    }

    /// Runs a task that ends with the children; its failure ends them.
    pub(super) fn until_stopped(&mut self, work: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        self.tasks.spawn(run_until(self.stop.clone(), work));
    }

    /// Returns the reason for giving up the language runtime, set once that happens.
    pub(super) fn died(&self) -> RuntimeFailure {
        Arc::clone(&self.died)
    }

    fn supervise_required(&mut self, program: Program) {
        self.tasks.spawn(supervise(program, self.stop.clone()));
    }

    /// Starts a program without which the rest still works, such as a runtime on a machine that has no sandbox.
    fn supervise_optional(&mut self, program: Program) {
        let name = program.name;
        let died = self.died();
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            if let Err(error) = supervise(program, stop).await {
                let why = print::in_full(&error);
                tracing::error!(program = name, error = why, "program is off; everything else keeps running");
                // Err: already set.
                let _ = died.set(why);
            }
            Ok(())
        });
    }

    /// Waits for a failure.
    pub(super) async fn wait_for_failure(&mut self) -> anyhow::Error {
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
                tracing::error!(%error, "process of the stack failed");
            }
        }
    }
}

async fn run_until(
    stop: CancellationToken,
    work: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    tokio::select! {
        () = stop.cancelled() => Ok(()),
        done = work => done,
    }
}
