//! Certificates between a gateway and its runtimes.

/// An authority and what it has signed, as PEM.
pub(crate) struct Authority {
    certificate: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Authority { certificate, issuer: rcgen::Issuer::new(params, key) }
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A process of this role that trusts `authority`.
    pub(crate) fn peer(&self, role: &str, authority: &Authority) -> asp_peer::Peer {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: String| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (certificate, key) = self.sign(role);
        let files = asp_peer::PeerFiles {
            certificate: file("cert.pem", certificate),
            key: file("key.pem", key),
            authority: file("ca.pem", authority.pem()),
            revoked: None,
        };
        // What was read stays in use when the files are gone.
        asp_peer::Peer::open(files, asp_peer::Role::Gateway).unwrap()
    }

    /// Certificate and key of a process of this role.
    pub(crate) fn sign(&self, role: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let uri = format!("spiffe://example.org/asp/{role}/test").try_into().unwrap();
        params.subject_alt_names.push(rcgen::SanType::URI(uri));
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}
