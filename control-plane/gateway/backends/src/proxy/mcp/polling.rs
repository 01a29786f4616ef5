//! Polls of upstreams over HTTP, each in one separate session.
//!
//! Keeps true: it lists as a client with all capabilities, like `asp import`, so that an item that a server lists to
//! some clients only does not count as removed; requests of the server are refused.

use std::time::Duration;

use asp_mcp_client::client::session::Session;
use asp_mcp_client::client::{Client, ClientFault};
use asp_mcp_client::listing::{every_capability, list};
use async_trait::async_trait;
use reqwest::StatusCode;

use crate::accepted::watching::{PollResult, Poller};

/// Maximum time that a call waits for a poll.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Session for polls of one upstream.
pub(super) struct OverHttp {
    client: Client,
    session: Option<Session>,
}

impl OverHttp {
    pub(super) fn of(client: Client) -> OverHttp {
        OverHttp { client, session: None }
    }

    async fn listed(&self, session: Session) -> Result<(PollResult, Session), ClientFault> {
        let lists = list(&self.client, &session).await?;
        Ok((PollResult { lists, tells_of_changes: session.tells_of_lists() }, session))
    }

    async fn open(&self) -> Result<Session, ClientFault> {
        let mut session = self.client.initialize(every_capability()).await?;
        session.listen_to_changes(true).await;
        Ok(session)
    }
}

#[async_trait]
impl Poller for OverHttp {
    async fn poll(&mut self) -> Result<PollResult, String> {
        self.client.proof.renew(&self.client.url).await;
        if let Some(session) = &self.session {
            session.proves_as(&self.client);
        }
        // Returned only if all went well; otherwise the next poll opens another session.
        let polled = async {
            let session = match self.session.take() {
                Some(session) => session,
                None => self.open().await?,
            };
            self.listed(session).await
        };
        let (polled, session) = match polled.await {
            Ok(polled) => polled,
            Err(fault) => {
                if matches!(fault, ClientFault::Refused { status: StatusCode::UNAUTHORIZED, .. }) {
                    self.client.proof.refused().await;
                }
                return Err(fault.to_string());
            }
        };
        self.session = Some(session);
        Ok(polled)
    }

    async fn changed(&mut self) {
        match &self.session {
            Some(session) => session.running.lists_changed().notified().await,
            None => std::future::pending().await,
        }
    }
}
