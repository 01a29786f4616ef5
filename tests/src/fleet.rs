//! The platform as it is run: gateways and two control planes behind one Envoy, on one PostgreSQL and one Redis, and a service
//! that remembers what it did.

mod admin;
pub mod ends;
pub mod load;
mod parts;
mod places;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

pub use self::parts::Part;
pub use self::places::Places;
use crate::caller::Caller;
use crate::cluster::{Cables, Cluster, Cut, Layout};
use crate::history::History;
use crate::runtime::{self, Runtime, World};
use crate::stores::{Postgres, Redis};
use crate::tool;
use crate::works::Works;

const GATEWAYS: usize = 3;
const PLUGINS: &str = "tests/fixtures/saving";
/// Longer than the longest row of `make chaos`.
const TOKEN: &str = "2h";
/// The bound of calls in `tests/fixtures/works`, and that of long ones.
const SHORT: &str = "maxRuntimeSeconds: 45";
const LONG: &str = "maxRuntimeSeconds: 600";

/// A running fleet; dropping it ends every process.
pub struct Fleet {
    pub cluster: Cluster,
    pub redis: Redis,
    pub postgres: Postgres,
    pub works: Works,
    pub history: History,
    pub caller: Caller,
    /// With the plugin of `tests/fixtures/saving`, where it was asked for.
    pub runtime: Option<Runtime>,
    _primitives: TempDir,
}

impl Fleet {
    pub async fn start() -> Result<Fleet> {
        let postgres = Postgres::start().await?;
        Box::pin(Fleet::start_on(postgres, None, None, |_, _| Cut::Nothing)).await
    }

    /// The same, with a runtime and a plugin.
    pub async fn start_with_plugins() -> Result<Fleet> {
        let runtime = Runtime::start(&tool::root()?.join(PLUGINS), World::default()).await?;
        let postgres = Postgres::start().await?;
        Box::pin(Fleet::start_on(postgres, None, Some(runtime), |_, _| Cut::Nothing)).await
    }

    /// The same; its calls may take ten minutes, and the clock of PostgreSQL can be stepped.
    pub async fn start_for_long_calls() -> Result<Fleet> {
        let postgres = Postgres::start_with_own_clock().await?;
        Box::pin(Fleet::start_on(postgres, Some(LONG), None, |_, _| Cut::Nothing)).await
    }

    /// The same; each gateway has cables of its own to the stores and to the control planes.
    pub async fn start_over_cables() -> Result<Fleet> {
        let each = |postgres: &Postgres, redis: &Redis| Cut::Each {
            postgres: postgres.socket(),
            redis: redis.socket.clone(),
        };
        let postgres = Postgres::start().await?;
        Box::pin(Fleet::start_on(postgres, None, None, each)).await
    }

    /// Starts it on this database. `bound` replaces the bound of the calls of `works`.
    async fn start_on(
        postgres: Postgres,
        bound: Option<&str>,
        runtime: Option<Runtime>,
        cut: impl Fn(&Postgres, &Redis) -> Cut,
    ) -> Result<Fleet> {
        let redis = Redis::start().await?;
        let history = History::default();
        let works = Works::start(&history).await?;
        let primitives = tempfile::tempdir()?;
        let root = tool::root()?;
        copy(&root.join("primitives/demo"), &primitives.path().join("demo"))?;
        let of_works = primitives.path().join("works");
        copy(&root.join("tests/fixtures/works/works"), &of_works)?;
        if let Some(bound) = bound {
            bound_runtime(&of_works, bound)?;
        }
        let mut environment = vec![
            ("ASP_DATABASE_URL", postgres.url()),
            ("ASP_REDIS_URL", redis.url()),
            ("ASP_UPSTREAMS", works.upstream()),
        ];
        if let Some(runtime) = &runtime {
            copy(&root.join(PLUGINS).join("saving"), &primitives.path().join("saving"))?;
            environment.push(("ASP_RUNTIMES", runtime::address(&runtime.socket)));
        }
        let layout = Layout {
            has_second_control: true,
            cut: cut(&postgres, &redis),
            environment,
            primitives: primitives.path().to_owned(),
            ..Layout::of(GATEWAYS)?
        };
        let cluster = Cluster::start_as(layout).await?;
        let token = cluster.token(&["--org", "acme", "--user", "alice", "--ttl", TOKEN]).await?;
        let caller = Caller { token, history: history.clone() };
        let fleet =
            Fleet { cluster, redis, postgres, works, history, caller, runtime, _primitives: primitives };
        fleet.is_well().await?;
        Ok(fleet)
    }

    /// Another user of the org.
    pub async fn caller_named(&self, user: &str) -> Result<Caller> {
        let token = self.cluster.token(&["--org", "acme", "--user", user, "--ttl", TOKEN]).await?;
        Ok(Caller { token, history: self.history.clone() })
    }

    /// What was played, which must have come to its end, and its history, which must hold.
    pub fn judged(&self, played: Result<()>) -> Result<()> {
        let held = self.history.hold();
        match played {
            Ok(()) => held,
            Err(error) => match held {
                Ok(()) => Err(error),
                Err(faults) => Err(error.context(format!("{faults:#}"))),
            },
        }
    }

    /// A gateway's cables.
    pub fn cables(&self, gateway: usize) -> Result<&Cables> {
        let gateway = self.cluster.gateways.get(gateway).context("a gateway of this number")?;
        gateway.cables.as_ref().context("its cables")
    }
}

/// Replaces the bound of every call whose spec lies here.
fn bound_runtime(specs: &Path, runtime: &str) -> Result<()> {
    let mut replaced = 0;
    for entry in std::fs::read_dir(specs)? {
        let path = entry?.path();
        let spec = std::fs::read_to_string(&path)?;
        replaced += spec.matches(SHORT).count();
        std::fs::write(path, spec.replace(SHORT, runtime))?;
    }
    ensure!(replaced > 0, "no spec in {} has {SHORT}", specs.display());
    Ok(())
}

pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&source, &target)?;
        } else {
            std::fs::copy(&source, &target)?;
        }
    }
    Ok(())
}
