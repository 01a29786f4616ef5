//! The vault's key services, which wrap the data keys of sealed records.
//!
//! Keeps true: credentials come only from the environment, print as `***`, and are not repeated by any fault.

use std::path::{Path, PathBuf};
use std::time::Duration;

use asp_command::environment::Environment;
use asp_command::failure::SettingFault;
use asp_platform::address;
use asp_platform::secret::Secret;
use clap::Args;

use super::database::{Database, DatabaseArgs};
use super::source::Checks;
use super::values::{List, list, number, origin};
use super::{DEFAULT_STATE_DIR, ENV_STATE_DIR, Settings};

pub const ENV_VAULT_KMS: &str = "ASP_VAULT_KMS";
/// File of local keys, below the state directory.
pub const VAULT_KEY_FILE: &str = "vault-key";
/// Maximum time that cached data keys outlive their service, in seconds.
const MOST_OFFLINE: u64 = 86_400;
/// Maximum length of a credential in bytes; session tokens have some 1,000.
const MAX_CREDENTIAL: usize = 8_192;

/// Key service that a setting names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyServiceChoice {
    /// The file of the state directory, made at first use.
    StateFile,
    /// A file that the operator gives to several machines.
    File(PathBuf),
    /// Key of AWS KMS, by its ARN.
    Aws(String),
    /// Socket of a Kubernetes KMS plugin.
    Plugin(PathBuf),
    /// None: several machines would each make a key of their own.
    Missing,
}

/// Settings of the vault
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Vault")]
pub struct VaultSection {
    /// Service that holds the keys of the vault, for linked accounts: `local`, `local:<file>`, `aws:<key ARN>` or
    /// `plugin:<socket>` (docs/vault.md) [default: `local`, a file in the state directory; none with PostgreSQL]
    #[arg(long, env = ENV_VAULT_KMS, value_parser = key_service)]
    vault_kms: Option<KeyServiceChoice>,
    /// Former services, which only open what was sealed with them, separated by commas [default: none]
    #[arg(long, env = "ASP_VAULT_KMS_PREVIOUS", default_value = "", value_parser = key_services)]
    pub vault_kms_previous: List<KeyServiceChoice>,
    /// Seconds for which records used recently still open while the key service is unavailable
    #[arg(long, env = "ASP_VAULT_OFFLINE_SECONDS", default_value_t = 3_600, value_parser = number(0..=MOST_OFFLINE))]
    vault_offline: u64,
    /// Id of the access key for AWS KMS (required with `aws:…`)
    #[arg(long, env = "ASP_VAULT_AWS_ACCESS_KEY_ID", hide_env_values = true, value_parser = credential)]
    pub vault_aws_access_key: Option<Secret>,
    /// Secret of the access key (required with `aws:…`)
    #[arg(long, env = "ASP_VAULT_AWS_SECRET_ACCESS_KEY", hide_env_values = true, value_parser = credential)]
    pub vault_aws_secret_key: Option<Secret>,
    /// Token of temporary credentials
    #[arg(long, env = "ASP_VAULT_AWS_SESSION_TOKEN", hide_env_values = true, value_parser = credential)]
    pub vault_aws_session_token: Option<Secret>,
    /// Origin of AWS KMS, for example of a VPC endpoint [default: that of the key's region]
    #[arg(long, env = "ASP_VAULT_AWS_ENDPOINT", value_parser = origin)]
    pub vault_aws_endpoint: Option<String>,
}

/// Location of local keys, for commands that need no other settings
#[derive(Clone, Debug, Args)]
pub struct KeyFileSettings {
    #[arg(long, env = ENV_STATE_DIR, default_value = DEFAULT_STATE_DIR)]
    pub state_dir: PathBuf,
    #[command(flatten)]
    database_args: DatabaseArgs,
    #[command(flatten)]
    vault: VaultSection,
    #[arg(skip = Database::Memory)]
    database: Database,
}

impl KeyFileSettings {
    pub fn read(environment: &dyn Environment) -> Result<KeyFileSettings, Vec<SettingFault>> {
        let mut checks = Checks::new(environment, false);
        let mut settings = checks.read::<KeyFileSettings>();
        if let Some(settings) = &mut settings {
            settings.database = settings.database_args.database(&mut checks, &settings.state_dir);
        }
        checks.finish(settings)
    }

    /// Returns the file; `None` if the key service is another.
    pub fn key_file(&self) -> Option<PathBuf> {
        self.vault.key_file(&self.database, &self.state_dir)
    }
}

impl VaultSection {
    /// Returns the service that wraps new data keys. Without a setting it is the file of the state directory, unless
    /// PostgreSQL shows that there may be several machines.
    pub fn current(&self, database: &Database) -> KeyServiceChoice {
        match (&self.vault_kms, database) {
            (Some(choice), _) => choice.clone(),
            (None, Database::Postgres(_)) => KeyServiceChoice::Missing,
            (None, Database::Sqlite(_) | Database::Memory) => KeyServiceChoice::StateFile,
        }
    }

    /// Returns the file of local keys that `asp vault` works on; `None` if the service is another.
    fn key_file(&self, database: &Database, state_dir: &Path) -> Option<PathBuf> {
        match self.current(database) {
            KeyServiceChoice::StateFile => Some(state_dir.join(VAULT_KEY_FILE)),
            KeyServiceChoice::File(path) => Some(path),
            KeyServiceChoice::Aws(_) | KeyServiceChoice::Plugin(_) | KeyServiceChoice::Missing => None,
        }
    }

    /// Time for which cached data keys stay usable while the key service is unavailable.
    pub fn offline(&self) -> Duration {
        Duration::from_secs(self.vault_offline)
    }

    /// Checks that the credentials of AWS are complete, and that there are none without a use.
    pub(super) fn check(&self, checks: &mut Checks<'_>, settings: &Settings) {
        let keys = [
            ("ASP_VAULT_AWS_ACCESS_KEY_ID", self.vault_aws_access_key.is_some()),
            ("ASP_VAULT_AWS_SECRET_ACCESS_KEY", self.vault_aws_secret_key.is_some()),
        ];
        let mut services = self.vault_kms.iter().chain(&self.vault_kms_previous);
        if !services.any(|choice| matches!(choice, KeyServiceChoice::Aws(_))) {
            checks.without(ENV_VAULT_KMS, &keys);
            let others = [
                ("ASP_VAULT_AWS_SESSION_TOKEN", self.vault_aws_session_token.is_some()),
                ("ASP_VAULT_AWS_ENDPOINT", self.vault_aws_endpoint.is_some()),
            ];
            checks.without(ENV_VAULT_KMS, &others);
            return;
        }
        for (name, _) in keys.iter().filter(|(_, is_given)| !is_given) {
            checks.fault(name, "is required with aws:… in ASP_VAULT_KMS");
        }
        let plain = self.vault_aws_endpoint.as_ref().and_then(|origin| origin.strip_prefix("http://"));
        let is_exposed = plain.is_some_and(|rest| !address::is_this_machine(host(rest)));
        if is_exposed && !settings.dev && !settings.in_mesh() {
            let message = "must be https: data keys would be in clear on the network";
            checks.fault("ASP_VAULT_AWS_ENDPOINT", message);
        }
    }
}

/// Returns the host of `host[:port]`, without the brackets of an IPv6 address.
fn host(authority: &str) -> &str {
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.split_once(':').map_or(authority, |(host, _)| host),
    }
}

fn key_services(text: &str) -> Result<List<KeyServiceChoice>, String> {
    list(text, key_service)
}

fn key_service(text: &str) -> Result<KeyServiceChoice, String> {
    let fault = || {
        format!(
            "must be `local`, `local:<file>`, `aws:<key ARN>` or `plugin:<socket>`, with absolute paths, not `{text}`"
        )
    };
    if text == "local" {
        return Ok(KeyServiceChoice::StateFile);
    }
    let path = |path: &str| Some(PathBuf::from(path)).filter(|path| path.is_absolute()).ok_or_else(fault);
    match text.split_once(':').ok_or_else(fault)? {
        ("local", file) => Ok(KeyServiceChoice::File(path(file)?)),
        ("plugin", socket) => Ok(KeyServiceChoice::Plugin(path(socket.trim_start_matches("unix://"))?)),
        ("aws", arn) => match asp_vault::aws::KeyArn::parse(arn) {
            Some(_) => Ok(KeyServiceChoice::Aws(arn.to_owned())),
            None => Err(format!(
                "must name a key, not an alias, as arn:aws:kms:<region>:<account>:key/<id>, not `{arn}`"
            )),
        },
        _ => Err(fault()),
    }
}

/// Parses a credential. Rejects other than printable characters, such as a line end from a file.
fn credential(text: &str) -> Result<Secret, &'static str> {
    if text.len() > MAX_CREDENTIAL || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("must be printable without spaces and line ends");
    }
    Ok(Secret::new(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::args::ServeArgs;

    const ARN: &str = "aws:arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";
    const GOOD: [(&str, &str); 2] =
        [("ASP_PUBLIC_URL", "https://mcp.example.com"), ("ASP_SEAL_KEY", "0123456789abcdef0123456789abcdef")];
    const KEYS: [(&str, &str); 2] = [
        ("ASP_VAULT_AWS_ACCESS_KEY_ID", "AKIAEXAMPLE"),
        ("ASP_VAULT_AWS_SECRET_ACCESS_KEY", "hunter2/hunter2"),
    ];

    fn read(more: &[(&'static str, &'static str)]) -> Result<Settings, Vec<String>> {
        let environment: BTreeMap<&str, &str> = GOOD.into_iter().chain(more.iter().copied()).collect();
        let read = Settings::read(&ServeArgs::default(), &environment);
        assert!(!format!("{read:?}").contains("hunter2"), "secrets print as ***");
        read.map_err(|faults| faults.into_iter().map(|fault| fault.name).collect())
    }

    #[test]
    fn one_machine_needs_no_setting_and_several_get_no_key_of_their_own() {
        let current = |more: &[(&'static str, &'static str)]| {
            let settings = read(more).unwrap();
            settings.vault.current(&settings.database)
        };
        assert_eq!(current(&[]), KeyServiceChoice::StateFile);
        let shared = ("ASP_DATABASE_URL", "postgres://asp@db/asp");
        assert_eq!(current(&[shared]), KeyServiceChoice::Missing);
        let file = ("ASP_VAULT_KMS", "local:/etc/asp/vault-key");
        assert_eq!(current(&[shared, file]), KeyServiceChoice::File("/etc/asp/vault-key".into()));
        assert_eq!(current(&[shared, ("ASP_VAULT_KMS", "local")]), KeyServiceChoice::StateFile);
    }

    #[test]
    fn a_service_is_named_in_one_way() {
        let choice = |text: &str| key_service(text).ok();
        assert_eq!(choice("plugin:/run/kms.sock"), Some(KeyServiceChoice::Plugin("/run/kms.sock".into())));
        assert_eq!(
            choice("plugin:unix:///run/kms.sock"),
            Some(KeyServiceChoice::Plugin("/run/kms.sock".into()))
        );
        assert_eq!(choice(ARN), Some(KeyServiceChoice::Aws(ARN[4..].to_owned())));
        for bad in [
            "",
            "aws",
            "aws:",
            "aws:alias/asp",
            "aws:arn:aws:kms:eu-west-1:111122223333:alias/asp",
            "local:",
            "local:vault-key",
            "plugin:kms.sock",
            "vault:/x",
        ] {
            assert_eq!(choice(bad), None, "{bad}");
        }
        let previous = key_services(&format!("local,{ARN}")).unwrap();
        assert_eq!(previous.len(), 2);
    }

    #[test]
    fn aws_needs_credentials_and_they_need_aws() {
        let aws = ("ASP_VAULT_KMS", ARN);
        assert!(read(&[aws, KEYS[0], KEYS[1]]).is_ok());
        assert_eq!(
            read(&[aws]).unwrap_err(),
            ["ASP_VAULT_AWS_ACCESS_KEY_ID", "ASP_VAULT_AWS_SECRET_ACCESS_KEY"]
        );
        assert_eq!(
            read(&[KEYS[0], KEYS[1]]).unwrap_err(),
            ["ASP_VAULT_AWS_ACCESS_KEY_ID", "ASP_VAULT_AWS_SECRET_ACCESS_KEY"]
        );
        assert!(read(&[("ASP_VAULT_KMS_PREVIOUS", ARN), KEYS[0], KEYS[1]]).is_ok());
    }

    #[test]
    fn data_keys_are_not_in_clear_beyond_this_machine() {
        let with = |endpoint| {
            read(&[("ASP_VAULT_KMS", ARN), KEYS[0], KEYS[1], ("ASP_VAULT_AWS_ENDPOINT", endpoint)])
        };
        assert_eq!(with("http://kms.example.com").unwrap_err(), ["ASP_VAULT_AWS_ENDPOINT"]);
        for endpoint in ["https://kms.example.com", "http://127.0.0.1:4566", "http://[::1]:4566"] {
            assert!(with(endpoint).is_ok(), "{endpoint}");
        }
    }
}
