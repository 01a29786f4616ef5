//! The key service of a platform that has none.

use async_trait::async_trait;

use crate::error::VaultError;
use crate::key_service::{DataKey, KeyService, WrappedKey};
use crate::place::Place;

/// Refuses every request with the setting that is missing.
pub struct NoKeyService;

fn refused<T>() -> Result<T, VaultError> {
    Err(VaultError::Refused {
        service: "none",
        cause: "processes on several machines need keys in common; set ASP_VAULT_KMS (docs/vault.md)".into(),
    })
}

#[async_trait]
impl KeyService for NoKeyService {
    fn name(&self) -> &'static str {
        "none"
    }

    fn is_remote(&self) -> bool {
        false
    }

    async fn current_key(&self) -> Result<String, VaultError> {
        refused()
    }

    async fn wrap(&self, _data_key: &DataKey, _place: &Place<'_>) -> Result<WrappedKey, VaultError> {
        refused()
    }

    async fn unwrap(&self, _wrapped: &WrappedKey, _place: &Place<'_>) -> Result<DataKey, VaultError> {
        refused()
    }
}
