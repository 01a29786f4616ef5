//! The vault: its key services as the settings name them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use asp_platform::secret::Secret;
use asp_vault::aws::{AwsCredentials, AwsKms, KeyArn};
use asp_vault::local::LocalKeys;
use asp_vault::plugin::KmsPlugin;
use asp_vault::{CacheBounds, KeyService, NoKeyService, Vault};

use crate::settings::Settings;
use crate::settings::database::Database;
use crate::settings::vault::{KeyServiceChoice, VAULT_KEY_FILE};

/// Interval at which unusable data keys are removed from memory.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Opens the vault, without asking its key service. Needs a running tokio runtime.
pub(super) fn open(settings: &Settings) -> anyhow::Result<Vault> {
    let choice = settings.vault.current(&settings.database);
    // Records in memory end with this process, so does their key.
    let current: Arc<dyn KeyService> = match (&choice, &settings.database) {
        (KeyServiceChoice::StateFile, Database::Memory) => Arc::new(LocalKeys::in_memory()?),
        _ => service(settings, &choice)?,
    };
    let former = settings.vault.vault_kms_previous.iter().map(|choice| service(settings, choice));
    let former = former.collect::<anyhow::Result<Vec<_>>>()?;
    let bounds = CacheBounds::for_outage(settings.vault.offline());
    let vault = Vault::with_services(current, former, bounds);
    if vault.is_remote() {
        tokio::spawn(log_fault(vault.clone()));
    }
    tokio::spawn(sweep(vault.clone()));
    Ok(vault)
}

fn service(settings: &Settings, choice: &KeyServiceChoice) -> anyhow::Result<Arc<dyn KeyService>> {
    let service: Arc<dyn KeyService> = match choice {
        KeyServiceChoice::StateFile => local(&settings.state_dir),
        KeyServiceChoice::File(path) => Arc::new(LocalKeys::shared(path)),
        KeyServiceChoice::Aws(arn) => Arc::new(aws(settings, arn)?),
        KeyServiceChoice::Plugin(socket) => Arc::new(KmsPlugin::open(socket)?),
        KeyServiceChoice::Missing => Arc::new(NoKeyService),
    };
    Ok(service)
}

fn local(state_dir: &Path) -> Arc<dyn KeyService> {
    Arc::new(LocalKeys::of_this_machine(&state_dir.join(VAULT_KEY_FILE)))
}

fn aws(settings: &Settings, arn: &str) -> anyhow::Result<AwsKms> {
    let section = &settings.vault;
    let given = |key: &Option<Secret>| key.clone().context("AWS KMS needs an access key");
    let credentials = AwsCredentials {
        access_key: given(&section.vault_aws_access_key)?,
        secret_key: given(&section.vault_aws_secret_key)?,
        session_token: section.vault_aws_session_token.clone(),
    };
    let key = KeyArn::parse(arn).context("read the key of AWS KMS")?;
    let opened = AwsKms::open(key, section.vault_aws_endpoint.as_deref(), credentials);
    opened.context("open AWS KMS")
}

/// Logs a fault of the key service, so that it is known before the service is needed. It may be unreachable when a process
/// starts.
async fn log_fault(vault: Vault) {
    if let Err(error) = vault.check().await {
        tracing::warn!(
            %error,
            "the key service that ASP_VAULT_KMS names cannot be used yet: accounts can be linked only when it can; check \
             that it runs, its key and the permissions on it (docs/vault.md)"
        );
    }
}

/// Removes data keys that are no longer usable from memory, until the process ends.
async fn sweep(vault: Vault) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        ticks.tick().await;
        vault.sweep();
    }
}
