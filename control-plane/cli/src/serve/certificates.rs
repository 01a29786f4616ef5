//! The certificates of this process: towards the platform's other processes, and of the admin API.

use asp_command::failure::Failure;
use asp_peer::{Peer, Role, ServerCertificate};

use crate::settings::Settings;
use crate::settings::tls::{ENV_ADMIN_TLS_CERT, ENV_PEER_CERT};

/// Both are reloaded when their files change.
pub(super) struct Certificates {
    /// Certificate for mutual TLS between the platform's processes.
    pub(super) peer: Option<Peer>,
    /// Certificate of the admin API; `None`: plain HTTP.
    pub(super) admin: Option<ServerCertificate>,
}

impl Certificates {
    /// Reads the certificates; an unusable one is a fault of the configuration.
    pub(super) fn open(settings: &Settings) -> Result<Certificates, Failure> {
        Ok(Certificates { peer: peer(settings)?, admin: admin(settings)? })
    }
}

/// Reads this process's certificate, which must name its role; a control plane may be a gateway as well.
fn peer(settings: &Settings) -> Result<Option<Peer>, Failure> {
    let Some(files) = settings.peer.clone() else {
        return Ok(None);
    };
    let role = if settings.roles.control { Role::Control } else { Role::Gateway };
    Peer::open(files, role).map(Some).map_err(|error| {
        Failure::bad(ENV_PEER_CERT, format!("cannot be used: {error} (docs/certificates.md)"))
    })
}

fn admin(settings: &Settings) -> Result<Option<ServerCertificate>, Failure> {
    let Some(files) = settings.admin_tls.clone().filter(|_| settings.roles.control) else {
        return Ok(None);
    };
    ServerCertificate::open(files.certificate, files.key).map(Some).map_err(|error| {
        Failure::bad(ENV_ADMIN_TLS_CERT, format!("cannot be used: {error} (docs/certificates.md)"))
    })
}
