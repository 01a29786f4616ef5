//! Looks at upstreams over HTTP, each in one separate session.
//!
//! Keeps true: it lists as a client with all capabilities, like `asp import`, so that an item that a server lists to
//! some clients only does not count as removed; requests of the server are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use reqwest::StatusCode;
use serde_json::json;

use super::client::session::Session;
use super::client::{Client, ClientFault};
use super::listing::list;
use crate::executors::accepted::watching::{LookResult, Looks};

/// Maximum time that a call waits for a look.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Session for looks at one upstream.
pub(super) struct OverHttp {
    client: Client,
    next_id: Arc<AtomicU64>,
    session: Option<Session>,
}

impl OverHttp {
    pub(super) fn of(client: Client, next_id: Arc<AtomicU64>) -> OverHttp {
        OverHttp { client, next_id, session: None }
    }

    async fn listed(&self, session: Session) -> Result<(LookResult, Session), ClientFault> {
        let lists = list(&self.client, &session, || self.next_id.fetch_add(1, Ordering::Relaxed)).await?;
        Ok((LookResult { lists, tells_of_changes: session.tells_of_lists() }, session))
    }

    async fn open(&self) -> Result<Session, ClientFault> {
        let everything =
            json!({"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": true}, "sampling": {}});
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut session = self.client.initialize(id, everything).await?;
        session.listen_to_changes(true).await;
        Ok(session)
    }
}

#[async_trait]
impl Looks for OverHttp {
    async fn look(&mut self) -> Result<LookResult, String> {
        self.client.proof.renew(&self.client.url).await;
        if let Some(session) = &self.session {
            session.proves_as(&self.client);
        }
        // Returned only if all went well; otherwise the next look opens another session.
        let looked = async {
            let session = match self.session.take() {
                Some(session) => session,
                None => self.open().await?,
            };
            self.listed(session).await
        };
        let (looked, session) = match looked.await {
            Ok(looked) => looked,
            Err(fault) => {
                if matches!(fault, ClientFault::Refused { status: StatusCode::UNAUTHORIZED, .. }) {
                    self.client.proof.refused().await;
                }
                return Err(fault.to_string());
            }
        };
        self.session = Some(session);
        Ok(looked)
    }

    async fn changed(&mut self) {
        match &self.session {
            Some(session) => session.running.lists_changed().notified().await,
            None => std::future::pending().await,
        }
    }
}
