//! Test cases over one runtime, and the stack that most of them share.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use asp_e2e::keycloak::Keycloak;
use asp_e2e::stack::{Options, Stack};
use libtest_mimic::{Failed, Trial};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

use crate::{a2a_agents, attacks, on_behalf, policy};

/// Error lines that the shared tests cause on purpose.
const EXPECTED: &[&str] = &[];
/// The agent of the shared stack's root, which gRPC reaches at any host.
pub(crate) const DEFAULT_AGENT: &str = "a2a-conformance";
/// The same of the platform that is attacked: a key whose scope the org's bound has no more.
const OF_ATTACKS: &[&str] = &["which machines of the org may not have"];

/// Defines the function `trials` of a module: one trial for each function in the list, an `async fn(&Shared) -> Result<()>`.
/// A trial is printed as `group::function`. A function with an `if` is ignored where the condition does not hold. The function
/// after `;` adds trials with parameters in their names.
macro_rules! trials {
    ($group:ident: $($case:ident $(if $holds:expr)?),+ $(,)? $(; $more:path)?) => {
        pub(crate) fn trials(shared: &$crate::trial::Shared) -> Vec<libtest_mimic::Trial> {
            let cases = [$(
                shared.trial(concat!(stringify!($group), "::", stringify!($case)), $case)
                    $(.with_ignored_flag(!$holds))?
            ),+];
            cases.into_iter()$(.chain($more(shared)))?.collect()
        }
    };
}
pub(crate) use trials;

/// What every test gets.
#[derive(Clone)]
pub(crate) struct Shared {
    runtime: Handle,
    stack: Arc<OnceCell<Result<Stack, String>>>,
    plugin_stack: Arc<OnceCell<Result<Stack, String>>>,
    attacked: Arc<OnceCell<Result<attacks::World, String>>>,
    agents: Arc<OnceCell<Result<a2a_agents::World, String>>>,
    keycloak: Arc<OnceCell<Result<Arc<Keycloak>, String>>>,
}

impl Shared {
    pub(crate) fn new(runtime: Handle) -> Shared {
        Shared {
            runtime,
            stack: Arc::default(),
            plugin_stack: Arc::default(),
            attacked: Arc::default(),
            agents: Arc::default(),
            keycloak: Arc::default(),
        }
    }

    /// A running stack with the repository's primitives, started by the first test that asks. Tests must
    /// leave its policy as they found it.
    pub(crate) async fn stack(&self) -> Result<&Stack> {
        let start = || async {
            let dead_upstream = Some("everything.internal".to_string());
            let environment = vec![
                ("ASP_DEFAULT_AGENT", DEFAULT_AGENT.to_string()),
                // Tasks that wait for an answer run beside the calls of a thousand clients.
                ("ASP_MAX_CALLS_PER_ORG", "4096".to_string()),
            ];
            Stack::start(Options { dead_upstream, environment, ..Options::repository()? }).await
        };
        let stack =
            self.stack.get_or_init(|| async { start().await.map_err(|error| format!("{error:#}")) }).await;
        stack.as_ref().map_err(|error| anyhow!("the shared stack did not start: {error}"))
    }

    /// A running stack whose plugins run, with the repository's primitives.
    pub(crate) async fn plugin_stack(&self) -> Result<&Stack> {
        let start = || async {
            let stack = Stack::start(Options { plugins: true, ..Options::repository()? }).await?;
            policy::expose(&stack, "acme", "webex-compliance").await?;
            policy::expose_agent(&stack, "acme", "webex-compliance").await?;
            anyhow::Ok(stack)
        };
        let stack = self
            .plugin_stack
            .get_or_init(|| async { start().await.map_err(|error| format!("{error:#}")) })
            .await;
        stack.as_ref().map_err(|error| anyhow!("the stack with plugins did not start: {error}"))
    }

    /// A running platform of several teams and tenants, which the attacks share.
    pub(crate) async fn attacked(&self) -> Result<&attacks::World> {
        let start = || async { Box::pin(attacks::World::start()).await };
        let world =
            self.attacked.get_or_init(|| async { start().await.map_err(|error| format!("{error:#}")) }).await;
        world.as_ref().map_err(|error| anyhow!("the stack of the attacks did not start: {error}"))
    }

    /// Two running instances, of which one has imported the agents of the SDKs of A2A, and the other one.
    pub(crate) async fn agents(&self) -> Result<&a2a_agents::World> {
        let start = || async { Box::pin(a2a_agents::World::start()).await };
        let world =
            self.agents.get_or_init(|| async { start().await.map_err(|error| format!("{error:#}")) }).await;
        world.as_ref().map_err(|error| anyhow!("the stacks with remote agents did not start: {error}"))
    }

    /// A running Keycloak with the realm of [`on_behalf::realm`], to which tests add clients and realms of their own.
    pub(crate) async fn keycloak(&self) -> Result<Arc<Keycloak>> {
        let start = || async { Keycloak::start(&on_behalf::realm::acme()).await.map(Arc::new) };
        let keycloak =
            self.keycloak.get_or_init(|| async { start().await.map_err(|error| format!("{error:#}")) }).await;
        keycloak.clone().map_err(|error| anyhow!("the shared Keycloak did not start: {error}"))
    }

    /// A test named by a sentence.
    pub(crate) fn trial<T>(&self, name: &str, test: T) -> Trial
    where
        T: AsyncFnOnce(&Shared) -> Result<()> + Send + 'static,
    {
        let shared = self.clone();
        Trial::test(name, move || {
            let outcome = shared.runtime.block_on(Box::pin(test(&shared)));
            outcome.map_err(|error| Failed::from(format!("{error:#}")))
        })
    }

    /// Ends the shared stacks that were started, and judges their logs.
    pub(crate) async fn stop(mut self) -> Result<()> {
        for stack in [&mut self.stack, &mut self.plugin_stack] {
            if let Some(Ok(stack)) = Arc::get_mut(stack).and_then(OnceCell::take) {
                stack.stop(EXPECTED).await?;
            }
        }
        if let Some(Ok(world)) = Arc::get_mut(&mut self.attacked).and_then(OnceCell::take) {
            world.stop(OF_ATTACKS).await?;
        }
        if let Some(Ok(world)) = Arc::get_mut(&mut self.agents).and_then(OnceCell::take) {
            world.stop().await?;
        }
        Ok(())
    }
}
