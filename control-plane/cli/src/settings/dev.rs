//! The settings of `asp dev`: those of `asp serve --dev` that make sense on one developer's machine.
//!
//! Keeps true: settings of a deployment (its public name, certificates, other processes) are not read from the environment,
//! so that `asp dev` works in a shell that is set up for something else; only the gateway's port is fixed.

use std::path::{Path, PathBuf};

use asp_command::environment::Environment;
use asp_command::failure::SettingFault;

use super::source::Checks;
use super::{ENV_STATE_DIR, Settings, stack};
use crate::args::ServeArgs;

/// Port for clients.
const ENV_GATEWAY_PORT: &str = "ASP_GATEWAY_PORT";
/// Prefix of the settings for delegations, which are read: the model is the developer's choice.
const DELEGATES: &str = "ASP_DELEGATE_";
/// Subdirectory of `ASP_STATE_DIR` for the state of `asp dev`. The servers that `asp serve` keeps in the directory itself
/// would look like servers deleted from the followed directory, and `asp dev` would remove them.
const STATE: &str = "dev";

/// Returns the state directory; `None` if the environment names none.
pub fn state_dir(environment: &dyn Environment) -> Option<PathBuf> {
    environment.get(ENV_STATE_DIR).map(|named| Path::new(&named).join(STATE))
}

/// Command line options, which take precedence over the environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    pub port: Option<u16>,
    pub allow_private: bool,
}

/// Reads all settings, or returns every fault.
pub fn read(
    flags: Flags,
    state_dir: &Path,
    environment: &dyn Environment,
) -> Result<Settings, Vec<SettingFault>> {
    let port_is_chosen = flags.port.is_some() || environment.get(ENV_GATEWAY_PORT).is_some();
    let environment = OfDeveloper { port: flags.port, state_dir, environment };
    let args = ServeArgs { dev: true, ..ServeArgs::default() };
    let mut settings = Settings::read(&args, &environment)?;
    settings.listen.gateway_port_yields = !port_is_chosen;
    let mut checks = Checks::new(&environment, true);
    settings.stack = stack::programs(&mut checks, flags.allow_private);
    checks.finish(Some(settings))
}

struct OfDeveloper<'a> {
    port: Option<u16>,
    state_dir: &'a Path,
    environment: &'a dyn Environment,
}

impl Environment for OfDeveloper<'_> {
    fn raw(&self, name: &str) -> Option<String> {
        match name {
            ENV_STATE_DIR => Some(self.state_dir.to_string_lossy().into_owned()),
            ENV_GATEWAY_PORT => self.port.map(|port| port.to_string()).or_else(|| self.environment.get(name)),
            "ASP_PORT" | "ASP_ADMIN_PORT" | "ASP_XDS_PORT" | "ASP_ENVOY_ADMIN_PORT" => Some("0".into()),
            "ASP_BIND" | "ASP_RUNTIME_BIN" | "ASP_UPSTREAMS" | "ASP_SEAL_KEY" | "ASP_CREDENTIALS"
            | "ASP_ALLOW_PRIVATE" => self.environment.get(name),
            _ if name.starts_with(DELEGATES) => self.environment.get(name),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn settings(
        port: Option<u16>,
        environment: &[(&'static str, &'static str)],
    ) -> Result<Settings, Vec<SettingFault>> {
        let environment: BTreeMap<&str, &str> = environment.iter().copied().collect();
        read(Flags { port, ..Flags::default() }, Path::new("/tmp/state"), &environment)
    }

    #[test]
    fn only_the_gateways_port_is_fixed_and_the_command_line_wins() {
        let of_deployment =
            [(ENV_GATEWAY_PORT, "9000"), ("ASP_PUBLIC_URL", "https://x.example"), ("ASP_ADMIN_PORT", "9001")];
        let read = settings(None, &of_deployment).unwrap();
        assert_eq!((read.listen.gateway_port, read.listen.admin_port, read.listen.xds_port), (9000, 0, 0));
        assert_eq!((read.public_url.as_deref(), read.is_direct()), (None, true));
        assert_eq!(settings(Some(0), &of_deployment).unwrap().listen.gateway_port, 0);
        assert_eq!(
            settings(None, &[]).unwrap().listen.gateway_port,
            super::super::listen::DEFAULT_GATEWAY_PORT
        );
    }

    #[test]
    fn it_keeps_its_state_apart_from_what_asp_serve_keeps_under_the_same_name() {
        let named = BTreeMap::from([(ENV_STATE_DIR, "/srv/asp")]);
        let serve = Settings::read(&ServeArgs { dev: true, ..ServeArgs::default() }, &named).unwrap();
        assert_eq!(serve.state_dir, Path::new("/srv/asp"));
        let own = state_dir(&named).unwrap();
        assert_eq!(own, Path::new("/srv/asp/dev"));
        assert_eq!(read(Flags::default(), &own, &named).unwrap().state_dir, own);
        assert_eq!(state_dir(&BTreeMap::<&str, &str>::new()), None);
    }

    #[test]
    fn a_port_that_nobody_chose_yields_to_another_process() {
        let yields = |port, environment: &[(&'static str, &'static str)]| {
            settings(port, environment).unwrap().listen.gateway_port_yields
        };
        assert!(yields(None, &[]));
        assert!(!yields(Some(8082), &[]));
        assert!(!yields(None, &[(ENV_GATEWAY_PORT, "8082")]));
    }

    #[test]
    fn credentials_are_read_as_asp_serve_reads_them() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "s3cret").unwrap();
        let file = dir.path().join("credentials.json");
        let text = serde_json::json!({ "crm": { "origin": "https://crm.example", "bearerFile": secret } });
        std::fs::write(&file, text.to_string()).unwrap();
        let named = BTreeMap::from([("ASP_CREDENTIALS", file.to_str().unwrap())]);
        let read = read(Flags::default(), Path::new("/tmp/state"), &named).unwrap();
        assert!(read.gateway.credentials.contains_key("crm"));
        let faults = settings(None, &[("ASP_CREDENTIALS", "/nonexistent")]).unwrap_err();
        assert!(faults.iter().any(|fault| fault.name == "ASP_CREDENTIALS"), "{faults:?}");
    }

    #[test]
    fn private_services_are_reached_by_one_switch() {
        let allows = |allow_private, environment: &[(&'static str, &'static str)]| {
            let environment: BTreeMap<&str, &str> = environment.iter().copied().collect();
            let flags = Flags { allow_private, ..Flags::default() };
            let read = read(flags, Path::new("/tmp/state"), &environment)?;
            Ok::<_, Vec<SettingFault>>(read.stack.is_some_and(|stack| stack.allow_private))
        };
        assert!(!allows(false, &[]).unwrap());
        assert!(allows(true, &[]).unwrap());
        assert!(allows(false, &[("ASP_ALLOW_PRIVATE", "true")]).unwrap());
        assert_eq!(
            allows(false, &[("ASP_ALLOW_PRIVATE", "10.0.0.0/8")]).unwrap_err()[0].name,
            "ASP_ALLOW_PRIVATE"
        );
    }

    #[test]
    fn it_never_listens_beyond_this_machine() {
        let faults = settings(None, &[("ASP_BIND", "0.0.0.0")]).unwrap_err();
        assert!(faults.iter().any(|fault| fault.name == "--bind"), "{faults:?}");
    }
}
