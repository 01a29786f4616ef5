//! Network access of a worker: its proxy, and a socket for each TCP destination that its plugin lists.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use asp_launcher::{Egress, TcpEgress};
use tokio::net::UnixListener;
use tokio_util::task::AbortOnDropHandle;

use super::Machine;
use crate::egress::{self, ActiveCredentials, Destination, EGRESS_PORT};
use crate::plugin::installed::Plugin;
use crate::worker::home::{WorkerHome, own};

/// The worker's proxy.
#[derive(Debug)]
pub(super) struct EgressProxy {
    pub(super) credentials: Arc<ActiveCredentials>,
    /// End with the process: of the proxy, and of each destination.
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// Returns both ends of a worker's network access, for its sandbox.
pub(super) fn of(plugin: &Plugin, home: &WorkerHome) -> Egress {
    let destinations = plugin.manifest.destinations();
    let addresses = egress::loopback_addresses(&destinations);
    let numbered = destinations.into_iter().zip(addresses).enumerate();
    let tcp = numbered.map(|(number, (Destination { host, port }, address))| TcpEgress {
        socket: home.tcp_socket(number),
        host,
        address,
        port,
    });
    Egress { proxy_socket: home.egress_socket(), port: EGRESS_PORT, tcp: tcp.collect() }
}

impl Machine {
    /// Starts the worker's proxy, if its plugin has network access.
    pub(super) fn egress(&self, plugin: &Plugin, home: &WorkerHome) -> io::Result<Option<EgressProxy>> {
        if !plugin.manifest.has_network() {
            return Ok(None);
        }
        let _aside = self.aside.enter();
        let rules = egress::EgressRules::new(&plugin.manifest.allowed_domains).with_private(&plugin.private);
        let rules = if self.settings.egress_development { rules.for_development() } else { rules };
        let proxy = Arc::new(egress::Proxy::new(rules, plugin.name(), home.id.clone(), &self.egress));
        let serve = |socket: &Path, to: Option<Destination>| {
            let listener = UnixListener::bind(socket)?;
            std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
            own(socket, home.uid)?;
            let serving = egress::serve(listener, Arc::clone(&proxy), to);
            io::Result::Ok(AbortOnDropHandle::new(self.aside.spawn(serving)))
        };
        let mut tasks = vec![serve(&home.egress_socket(), None)?];
        for (number, to) in plugin.manifest.destinations().into_iter().enumerate() {
            tasks.push(serve(&home.tcp_socket(number), Some(to))?);
        }
        Ok(Some(EgressProxy { credentials: proxy.credentials(), _tasks: tasks }))
    }
}
