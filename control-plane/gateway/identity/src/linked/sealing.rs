//! Tokens of a link as the vault seals them, and their opening.
//!
//! Keeps true: opened tokens are never printed; sealed ones belong to their org and their link, and open in no other place; a link
//! whose key is not the current one is sealed again by its next use.

use std::time::Duration;

use asp_platform::secret::{Secret, SecretBytes};
use asp_store::linked_accounts::{LINK_TABLE, LinkId, LinkRow, LinkTokens, link_row};
use asp_vault::{Place, VaultError};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::endpoint::TokenAnswer;
use super::provider::KnownProvider;
use super::request::{LinkReason, NoLink};
use super::{LinkedTokens, OpenedTokens};

/// Tokens as they are sealed.
#[derive(Serialize)]
struct TokensToSeal<'a> {
    a: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    r: Option<&'a str>,
}

#[derive(Deserialize)]
struct SealedTokens {
    a: String,
    r: Option<String>,
}

impl LinkedTokens {
    /// Opens the tokens of a link; seals them again if their key is not the current one.
    pub(super) async fn open(&self, link: &LinkRow) -> Result<OpenedTokens, NoLink> {
        let row = link_row(link.id);
        let place = Place { tenant: &link.key.org, table: LINK_TABLE, row: &row };
        let opened = self.vault.open(&place, &link.sealed).await.map_err(not_opened)?;
        if opened.outdated
            && let Ok(sealed) = self.vault.seal(&place, opened.plain.expose()).await
            && let Err(error) = self.store.reseal(link.id, link.version, &Bytes::from(sealed)).await
        {
            tracing::warn!(%error, "linked account stays sealed under a former key until its next use");
        }
        read_tokens(&opened.plain)
    }

    /// Seals the tokens of an answer. `former` are the tokens in whose place they are; `scopes` those that were requested.
    pub(super) async fn sealed_tokens(
        &self,
        (id, org): (LinkId, &str),
        answer: &TokenAnswer,
        (former, scopes): (Option<(&OpenedTokens, &[u8])>, &str),
        provider: &KnownProvider,
    ) -> Result<LinkTokens, NoLink> {
        let kept = former.and_then(|(tokens, _)| tokens.refresh.as_ref());
        let refresh = answer.refresh.as_ref().or(kept);
        let plain = TokensToSeal { a: answer.access.expose(), r: refresh.map(Secret::expose) };
        let plain = serde_json::to_vec(&plain).map_err(|error| NoLink::Vault(error.to_string()))?;
        let plain = SecretBytes::new(plain);
        let row = link_row(id);
        let place = Place { tenant: org, table: LINK_TABLE, row: &row };
        let sealed = match former {
            Some((_, former)) => self.vault.reseal(&place, former, plain.expose()).await,
            None => self.vault.seal(&place, plain.expose()).await,
        };
        let sealed = sealed.map_err(|error| NoLink::Vault(error.to_string()))?;
        let assumed = provider.document.assumed_life_seconds.filter(|_| refresh.is_some());
        let assumed = assumed.map(|seconds| Duration::from_secs(seconds.into()));
        Ok(LinkTokens {
            version: rand::random::<i64>().saturating_abs().max(1),
            scopes: scopes.to_owned(),
            renewable: refresh.is_some(),
            access_life: answer.life.or(assumed),
            sealed: sealed.into(),
        })
    }
}

/// Returns the meaning of a link that does not open: if no later attempt can succeed, its user has to link it again.
fn not_opened(error: VaultError) -> NoLink {
    match error {
        VaultError::UnknownKey { .. } | VaultError::NotOpened => {
            tracing::debug!(%error, "tokens of a linked account do not open");
            NoLink::Missing(LinkReason::Unreadable)
        }
        other => NoLink::Vault(other.to_string()),
    }
}

/// Reads the tokens of a link from their opened text.
pub(super) fn read_tokens(plain: &SecretBytes) -> Result<OpenedTokens, NoLink> {
    let tokens: SealedTokens = serde_json::from_slice(plain.expose())
        .map_err(|_| NoLink::Vault("the tokens of a link do not have their form".into()))?;
    Ok(OpenedTokens { access: tokens.a.into(), refresh: tokens.r.map(Secret::from) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_asked_for_again_only_if_it_never_opens() {
        let key_id = "local:k1".to_owned();
        for lost in [VaultError::UnknownKey { key_id }, VaultError::NotOpened] {
            assert_eq!(not_opened(lost), NoLink::Missing(LinkReason::Unreadable));
        }
        let cause = || "away".to_owned();
        for passing in [
            VaultError::Unavailable { service: "aws", cause: cause() },
            VaultError::Refused { service: "aws", cause: cause() },
            VaultError::KeyFile(cause()),
        ] {
            assert!(matches!(not_opened(passing), NoLink::Vault(_)));
        }
    }
}
