//! The language runtime of a development machine: its plugins, its program and its addresses.
//!
//! The environment that set-up wrote (`ASP_PLUGIN_*`) determines the languages. Whatever is missing is logged in one line,
//! and the rest keeps working.

mod place;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use asp_command::environment::{Environment, ProcessEnvironment};
use asp_mcp_client::lines;
use asp_packaging::languages::Languages;
use asp_packaging::runtime;
use asp_packaging::{InstalledUnit, MCP_STDIO, Unit};
use asp_proto::supervisor::{EnsurePluginRequest, PluginRef};
use asp_registry::{Catalog, CompiledServer};
use asp_runtime_client::runtimes::Runtime;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::child::Program;
use super::plugins::{self, MissingPlugin, PastBuilds, Staging};
use super::secrets::{self, ENV_SECRETS, UnusedSecret};
use crate::settings::Settings;
use crate::settings::runtimes::RuntimeAddress;
use crate::settings::stack::StackSection;

/// Timeout for the start: well under a second usually, longer on a loaded machine.
const START: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Timeout for taking up new code: the runtime answers at once and starts workers afterwards.
const TAKE_UP: Duration = Duration::from_secs(10);

/// The runtime of `--stack` and `asp dev`.
pub struct LocalRuntime {
    program: PathBuf,
    plugins: PathBuf,
    directory: PathBuf,
    /// Name and value of every variable that the runtime needs.
    environment: Vec<(String, String)>,
    languages: Vec<&'static str>,
    allow_private: bool,
    /// Whether only the plugins' author calls them: without Envoy, in `asp dev`.
    development: bool,
}

/// Variables passed through to the runtime, which reads them itself: the authorities that its egress proxy trusts, and the
/// file of named secrets.
const PASSED_ON: [&str; 3] = ["SSL_CERT_FILE", "SSL_CERT_DIR", ENV_SECRETS];

impl LocalRuntime {
    /// Returns `None` if there is no runtime or no language, and logs why.
    pub fn find(settings: &Settings, stack: &StackSection, languages: Languages) -> Option<LocalRuntime> {
        let Some(program) = stack.runtime.clone() else {
            tracing::warn!(
                "plugins are off: asp-runtime was not found next to asp; install it or set ASP_RUNTIME_BIN"
            );
            return None;
        };
        let Languages { present: languages, mut environment, absent, notes, .. } = languages;
        for (language, missing) in absent {
            tracing::warn!(language, missing, "plugins of this language are off");
        }
        for (language, note) in notes {
            tracing::warn!(language, note, "plugins of this language run on an interpreter from the PATH");
        }
        if languages.is_empty() {
            return None;
        }
        let set = |name: &str| Some((name.to_owned(), ProcessEnvironment.get(name)?));
        environment.extend(PASSED_ON.into_iter().filter_map(set));
        Some(LocalRuntime {
            program,
            plugins: settings.state_dir.join("plugins"),
            directory: place::of(&settings.state_dir, &std::env::temp_dir()),
            environment,
            languages,
            allow_private: stack.allow_private,
            development: stack.envoy.is_none(),
        })
    }

    /// Returns the runtime's address and languages for the gateway.
    pub fn address(&self) -> RuntimeAddress {
        RuntimeAddress {
            languages: self.languages.iter().chain([&MCP_STDIO]).map(|name| (*name).to_owned()).collect(),
            url: format!("unix:{}", self.socket().display()),
        }
    }

    /// Builds and installs the plugins of a directory of primitives whose language is available. Returns those that could not
    /// be installed; earlier builds of these are removed.
    pub fn install(
        &self,
        catalog: &Catalog,
        primitives: &Path,
        stop: &CancellationToken,
    ) -> Vec<MissingPlugin> {
        plugins::install(catalog, primitives, (&self.plugins, &self.languages), stop)
    }

    /// Builds what is not in `made`, without changing what is installed.
    pub fn stage(
        &self,
        catalog: &Catalog,
        primitives: &Path,
        made: &mut PastBuilds,
        stop: &CancellationToken,
    ) -> Staging {
        plugins::stage(catalog, primitives, (&self.plugins, &self.languages), made, stop)
    }

    /// Lists the users of the runtime's named secrets that do not exist.
    pub fn unused_secrets<'a>(
        &self,
        servers: impl Iterator<Item = &'a CompiledServer> + Clone,
    ) -> Vec<UnusedSecret> {
        let file = self.environment.iter().find(|(name, _)| name == ENV_SECRETS);
        file.map(|(_, file)| secrets::unused(Path::new(file), servers)).unwrap_or_default()
    }

    pub fn runs(&self, unit: &Unit) -> bool {
        unit.is_in(Some(&self.languages))
    }

    /// Whether any build of a plugin is installed.
    pub fn has(&self, id: &str, version: &str) -> bool {
        self.plugins.join(id).join(version).is_dir()
    }

    /// Whether any version of a plugin is installed.
    pub fn has_any(&self, id: &str) -> bool {
        self.plugins.join(id).is_dir()
    }

    /// Tells the runtime that a plugin was replaced, so that the next call gets the new code. A runtime that is not running
    /// reads the code when it starts.
    pub async fn take_up(&self, plugin: &InstalledUnit) -> anyhow::Result<()> {
        let request = EnsurePluginRequest {
            plugin: Some(PluginRef {
                id: plugin.id.clone(),
                version: plugin.version.clone(),
                ..PluginRef::default()
            }),
            prewarm: true,
            lines: Some(lines::protocol()),
            ..EnsurePluginRequest::default()
        };
        let mut client = Runtime::local(&self.socket())?.any_client();
        let Ok(asked) = tokio::time::timeout(TAKE_UP, client.ensure_plugin(request)).await else {
            bail!("the runtime did not answer within {} s; restart asp dev", TAKE_UP.as_secs());
        };
        match asked {
            Err(status) if status.code() != Code::Unavailable => Err(anyhow!("{}", status.message())),
            _ => Ok(()),
        }
    }

    pub fn program(&self) -> anyhow::Result<Program> {
        std::fs::create_dir_all(&self.plugins)
            .with_context(|| format!("create {}", self.plugins.display()))?;
        place::make(&self.directory)?;
        let plugins = std::path::absolute(&self.plugins).unwrap_or_else(|_| self.plugins.clone());
        let socket = self.socket();
        Ok(Program {
            name: "asp-runtime",
            path: self.program.clone(),
            arguments: runtime::arguments(
                &plugins,
                &self.directory,
                &socket,
                (self.allow_private, self.development),
            ),
            environment: self.environment.clone(),
            listener: None,
        })
    }

    /// Waits until the program listens or `is_given_up`, for at most [`START`]. A program that does not start is reported by
    /// its supervisor.
    pub async fn listens(&self, is_given_up: impl Fn() -> bool) {
        let socket = self.socket();
        let given_up = async {
            while !is_given_up() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            () = given_up => {}
            // Err: see above.
            _ = tokio::time::timeout(START, runtime::listens(&socket)) => {}
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("api.sock")
    }
}
