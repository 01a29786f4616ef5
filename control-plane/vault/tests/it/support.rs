//! Places and vaults of the tests.

use std::sync::Arc;
use std::time::Duration;

use asp_vault::{CacheBounds, KeyService, Place, Vault, VaultError};

pub(crate) const PLACE: Place<'static> =
    Place { tenant: "acme", table: "linked_accounts", row: "bob/github" };
pub(crate) const ELSEWHERE: Place<'static> = Place { tenant: "other", ..PLACE };

/// Returns a vault that asks its service each time, and survives an outage of an hour.
pub(crate) fn vault(current: impl KeyService + 'static, former: Vec<Arc<dyn KeyService>>) -> Vault {
    let bounds = CacheBounds { keys: 100, fresh: Duration::ZERO, usable: Duration::from_secs(3_600) };
    Vault::with_services(Arc::new(current), former, bounds)
}

/// Opens a record and returns its plaintext, and whether it is outdated.
pub(crate) async fn open(vault: &Vault, sealed: &[u8]) -> Result<(Vec<u8>, bool), VaultError> {
    let opened = vault.open(&PLACE, sealed).await?;
    Ok((opened.plain.expose().to_vec(), opened.outdated))
}
