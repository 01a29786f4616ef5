//! Authentication of requests to an upstream: requests of a call as that call, requests without a call by the
//! operator's credential or not at all.
//!
//! Keeps true: no call's requests ever use the credentials of another call; requests of a session outside its calls
//! use those of the last call of its principal.

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Authentication headers of a client's requests. Clones share them; [`Proof::apart`] returns an independent copy.
#[derive(Clone, Default)]
pub struct Proof {
    headers: Arc<ArcSwap<HeaderMap>>,
    standing: Option<Arc<dyn StandingCredential>>,
}

/// Operator's credential, which is valid without a call.
#[async_trait]
pub trait StandingCredential: Send + Sync {
    /// Returns the header of a request to `url`; `None` if the credential gives none now.
    async fn header(&self, url: &Url) -> Option<(HeaderName, HeaderValue)>;
    /// Reports that the server refused the credential.
    async fn refused(&self);
}

impl Proof {
    /// Creates a proof with fixed headers, for any caller.
    pub fn fixed(headers: HeaderMap) -> Proof {
        Proof { headers: Arc::new(ArcSwap::from_pointee(headers)), standing: None }
    }

    /// Creates a proof that has no headers yet; `standing` authenticates requests without a call.
    pub fn standing(standing: Option<Arc<dyn StandingCredential>>) -> Proof {
        Proof { standing, ..Proof::default() }
    }

    /// Returns a copy that is changed independently.
    pub fn apart(&self) -> Proof {
        let headers = Arc::new(ArcSwap::new(self.headers.load_full()));
        Proof { headers, standing: self.standing.clone() }
    }

    pub fn headers(&self) -> HeaderMap {
        HeaderMap::clone(&self.headers.load())
    }

    pub fn replace(&self, headers: HeaderMap) {
        self.headers.store(Arc::new(headers));
    }

    /// Takes over the headers of a later call of the session's principal.
    pub fn follow(&self, newer: &Proof) {
        self.headers.store(newer.headers.load_full());
    }

    /// Replaces the headers before a request without a call: by the operator's current credential, or by none.
    pub async fn renew(&self, url: &Url) {
        let header = match &self.standing {
            Some(standing) => standing.header(url).await,
            None => None,
        };
        self.replace(HeaderMap::from_iter(header));
    }

    /// Reports that a request without a call was refused.
    pub async fn refused(&self) {
        if let Some(standing) = &self.standing {
            standing.refused().await;
        }
    }
}
