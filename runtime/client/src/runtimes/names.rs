//! A host name of runtimes, whose addresses are looked up repeatedly.
//!
//! Keeps true: a runtime stays the same as long as its address stays; a new one is used once it has answered; a name
//! that cannot be resolved, or currently has no address, keeps its last addresses, because a failing resolver must
//! not end what works. If a name has addresses of both families and only one family answers, the other one is left
//! out: machines listen on one of them.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::sleep;
use tonic::transport::Uri;

use super::runtime::{Link, ResolvedAddress, Runtime};
use super::{MAX_RUNTIMES, RuntimeTarget, Shared};

/// Interval between two look-ups: the address of a replaced runtime is known this soon. Resolvers cache their answers
/// themselves.
const EVERY: Duration = Duration::from_secs(5);
/// Minimum interval between two look-ups after a runtime was lost.
const AT_LEAST: Duration = Duration::from_millis(500);
const HTTPS: u16 = 443;

/// Resolver of host names.
#[async_trait]
pub trait Resolve: Send + Sync {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;

    /// Returns when the next look-up is due.
    async fn due(&self) {
        sleep(EVERY).await;
    }
}

/// The resolver of the operating system, with its own time limits.
pub struct System;

#[async_trait]
impl Resolve for System {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }
}

/// A host name and its known runtimes.
pub(super) struct Name {
    target: RuntimeTarget,
    /// Index of the target among all.
    place: usize,
    host: String,
    port: u16,
    known: Vec<Arc<Runtime>>,
    lost: Arc<Notify>,
    /// The name has more addresses than are used, and this was logged.
    is_too_many: bool,
}

impl Name {
    /// Returns the name of a target; `None` if it has none.
    pub(super) fn of(target: RuntimeTarget, place: usize) -> Option<Name> {
        let uri: Uri = target.url.parse().ok().filter(|uri: &Uri| uri.scheme_str() == Some("https"))?;
        let host = uri.host()?.to_owned();
        if host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
            return None;
        }
        let port = uri.port_u16().unwrap_or(HTTPS);
        Some(Name { target, place, host, port, known: Vec::new(), lost: Arc::default(), is_too_many: false })
    }

    /// Looks the name up repeatedly, for as long as the runtimes are in use.
    pub(super) async fn follow(mut self, resolver: Arc<dyn Resolve>, shared: Weak<Shared>) {
        loop {
            match resolver.resolve(&self.host, self.port).await {
                Ok(addresses) => {
                    let Some(shared) = shared.upgrade() else { return };
                    self.take(addresses, &shared);
                }
                Err(error) => {
                    tracing::debug!(host = %self.host, %error, "a name of plugin runtimes could not be resolved; its last addresses are kept")
                }
            }
            sleep(AT_LEAST).await;
            tokio::select! {
                () = resolver.due() => {}
                () = self.lost.notified() => {}
            }
        }
    }

    fn take(&mut self, addresses: Vec<SocketAddr>, shared: &Shared) {
        let answers = |address: &SocketAddr| {
            let known = self.known.iter().find(|runtime| runtime.address == Some(*address));
            known.is_some_and(|runtime| runtime.condition() == Link::Answers)
        };
        let mut addresses = of_one_family(addresses.into_iter().collect(), answers);
        if addresses.is_empty() {
            return;
        }
        if addresses.len() > MAX_RUNTIMES {
            if !std::mem::replace(&mut self.is_too_many, true) {
                tracing::warn!(host = %self.host, addresses = addresses.len(), limit = MAX_RUNTIMES, "a name of plugin runtimes has too many addresses; those beyond the limit are not used");
            }
            // Addresses that are in use are kept.
            let (known, new): (Vec<_>, Vec<_>) = addresses
                .into_iter()
                .partition(|address| self.known.iter().any(|runtime| runtime.address == Some(*address)));
            addresses = known.into_iter().chain(new).take(MAX_RUNTIMES).collect();
        }
        if addresses.len() == self.known.len()
            && self.known.iter().all(|runtime| runtime.address.is_some_and(|at| addresses.contains(&at)))
        {
            return;
        }
        self.known.retain(|runtime| {
            let stays = runtime.address.is_some_and(|address| addresses.remove(&address));
            if !stays {
                tracing::info!(
                    runtime = runtime.name(),
                    "a plugin runtime was removed from its name and gets no new calls"
                );
            }
            stays
        });
        for address in addresses {
            match Runtime::new(&self.target, Some(ResolvedAddress { address, lost: self.lost.clone() })) {
                Ok(runtime) => {
                    tracing::info!(
                        runtime = runtime.name(),
                        "a plugin runtime was added to its name and is used once it answers"
                    );
                    self.known.push(Arc::new(runtime));
                }
                Err(error) => tracing::warn!(%address, %error, "an address of plugin runtimes is not used"),
            }
        }
        shared.replace(self.place, self.known.clone());
    }
}

/// Leaves out the addresses of a family of which none answers, if one of the other family does.
fn of_one_family(
    addresses: BTreeSet<SocketAddr>,
    answers: impl Fn(&SocketAddr) -> bool,
) -> BTreeSet<SocketAddr> {
    let (four, six): (BTreeSet<_>, BTreeSet<_>) = addresses.into_iter().partition(SocketAddr::is_ipv4);
    match (four.iter().any(&answers), six.iter().any(&answers)) {
        (true, false) => four,
        (false, true) => six,
        _ => four.into_iter().chain(six).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_family_on_which_nobody_listens_are_left_out() {
        let addresses =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<BTreeSet<_>>();
        let (four, six) = ("127.0.0.1:1", "[::1]:1");
        let both = addresses(&[four, six]);
        let answering =
            |who: &'static [&'static str]| move |at: &SocketAddr| who.contains(&at.to_string().as_str());
        assert_eq!(of_one_family(both.clone(), answering(&[])), both, "nothing is known yet");
        assert_eq!(of_one_family(both.clone(), answering(&["127.0.0.1:1"])), addresses(&[four]));
        assert_eq!(of_one_family(both.clone(), answering(&["[::1]:1"])), addresses(&[six]));
        assert_eq!(of_one_family(addresses(&[six]), answering(&[])), addresses(&[six]));
    }
}
