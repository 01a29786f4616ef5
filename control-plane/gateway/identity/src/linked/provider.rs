//! Providers as gateways know them: read from the store, remembered for a moment.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asp_platform::secret::Secret;
use asp_store::linked_accounts::{LinkProvider, MAX_PROVIDERS, PROVIDER_TABLE, ProviderRow};
use asp_vault::Place;
use bytes::Bytes;
use reqwest::Url;
use tokio::time::Instant;

use super::request::{LinkRequest, NoLink};
use super::{LinkedTokens, unavailable};

/// Time for which a provider is remembered: a change holds at every gateway within a second.
const REMEMBER: Duration = Duration::from_millis(500);
/// One day.
const DAY: Duration = Duration::from_secs(86_400);

/// A provider with its client.
#[derive(Clone, Debug)]
pub struct KnownProvider {
    pub name: String,
    pub document: LinkProvider,
    sealed: Bytes,
}

#[derive(Default)]
pub(super) struct ProviderCache(HashMap<String, (Instant, Arc<KnownProvider>)>);

impl KnownProvider {
    fn read(row: ProviderRow) -> Result<KnownProvider, NoLink> {
        let document = serde_json::from_str(&row.document)
            .map_err(|error| unavailable(format!("the provider {:?} is not readable: {error}", row.name)))?;
        Ok(KnownProvider { name: row.name, document, sealed: row.sealed })
    }

    /// Returns the time after which a link ends.
    pub(super) fn keep(&self) -> Duration {
        DAY.saturating_mul(self.document.ttl_days.max(1))
    }

    /// Checks that a request may use accounts of this provider.
    fn check(&self, request: &LinkRequest<'_>) -> Result<(), NoLink> {
        let provider = || self.name.clone();
        let LinkRequest { server, primitive, .. } = request;
        if !self.document.serves(server, primitive) {
            return Err(NoLink::NotServed {
                provider: provider(),
                primitive: format!("{server}/{primitive}"),
            });
        }
        let org = &request.caller.org;
        if !self.document.serves_org(org) {
            return Err(NoLink::Org { provider: provider(), org: org.clone() });
        }
        let to = request.url.origin();
        let is_its = |origin: &String| Url::parse(origin).is_ok_and(|origin| origin.origin() == to);
        match self.document.origins.iter().any(is_its) {
            true => Ok(()),
            false => Err(NoLink::Origin { provider: provider(), to: to.ascii_serialization() }),
        }
    }
}

impl LinkedTokens {
    /// Returns the provider of a request that may use it.
    pub(super) async fn provider_of(&self, request: &LinkRequest<'_>) -> Result<Arc<KnownProvider>, NoLink> {
        request.key()?;
        let known = self.provider(&request.wanted.provider).await?;
        known.check(request)?;
        Ok(known)
    }

    /// Returns the provider of this name.
    pub async fn provider(&self, name: &str) -> Result<Arc<KnownProvider>, NoLink> {
        let now = Instant::now();
        let remembered = self.providers.lock().0.get(name).cloned();
        if let Some((at, known)) = remembered
            && now.duration_since(at) < REMEMBER
        {
            return Ok(known);
        }
        let Some(row) = self.store.provider(name).await.map_err(unavailable)? else {
            self.providers.lock().0.remove(name);
            return Err(NoLink::UnknownProvider(name.to_owned()));
        };
        let known = Arc::new(KnownProvider::read(row)?);
        let mut providers = self.providers.lock();
        if providers.0.len() >= usize::try_from(MAX_PROVIDERS).unwrap_or(usize::MAX) {
            providers.0.clear();
        }
        providers.0.insert(name.to_owned(), (now, Arc::clone(&known)));
        Ok(known)
    }

    /// Opens the secret of the provider's client; `None` for a public client.
    pub(super) async fn secret_of(&self, provider: &KnownProvider) -> Result<Option<Secret>, NoLink> {
        if provider.sealed.is_empty() {
            return Ok(None);
        }
        let place = Place { tenant: "", table: PROVIDER_TABLE, row: &provider.name };
        let opened = self.vault.open(&place, &provider.sealed).await;
        let opened = opened.map_err(|error| NoLink::Vault(error.to_string()))?;
        let text = std::str::from_utf8(opened.plain.expose());
        let text = text.map_err(|_| NoLink::Vault("the secret of a provider is not valid text".into()))?;
        Ok(Some(Secret::new(text.to_owned())))
    }
}
