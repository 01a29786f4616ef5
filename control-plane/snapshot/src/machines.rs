//! Lookup of the machine that a key (`psk`) or a certificate (`mtls`) belongs to.
//!
//! Owns: this lookup. Refuses: every other check of a request. The edge's code checks expiry, revocation, exposure
//! and scopes of the caller (`asp_edge::Edge::admit`), and the gateway's HTTP entry knows whether a certificate was
//! presented at all. Keeps true: no secret is stored here, and a comparison takes the same time wherever two hashes
//! differ; a name belongs to one machine, and the hash of a certificate with a URI of one org never identifies a
//! machine of another org. One round of SHA-256 is enough for stored hashes: a key has 256 random bits, and slow
//! hashes only protect keys that can be guessed.

use std::collections::HashMap;

use asp_edge::{Caller, KEY_PREFIX, MACHINE_ISSUER};
use asp_proto::snapshot::{MachineCertificate, MachineKey};
use sha2::{Digest, Sha256};

/// Expiry of a URI registration that only keeps other orgs from using certificates with that URI (`snapshot.proto`).
pub const RESERVED: u64 = 0;
/// Maximum length of a key in bytes; longer ones are rejected unread. Issued keys have 68.
const MAX_KEY: usize = 128;

/// The keys and certificates in force.
#[derive(Default)]
pub struct Machines {
    keys: HashMap<String, IndexedKey>,
    certificates: HashMap<String, MachineCertificate>,
    /// Ids of certificates by fingerprint.
    by_fingerprint: HashMap<[u8; 32], String>,
    by_uri: HashMap<String, String>,
    /// The org of each URI that identifies a machine, or once did and grants nothing now.
    uri_orgs: HashMap<String, String>,
}

struct IndexedKey {
    hash: [u8; 32],
    key: MachineKey,
}

/// The caller that a key or a certificate identifies; both messages have these fields.
macro_rules! caller_of {
    ($known:expr, $digest:expr) => {
        Caller {
            org: $known.org.clone(),
            user: $known.user.clone(),
            groups: $known.groups.clone(),
            scopes: $known.scopes.clone(),
            client: String::new(),
            wcit: $known.id.clone(),
            digest: $digest,
            issuer: MACHINE_ISSUER.to_owned(),
            issued_at: $known.issued_at,
            expires_at: $known.expires_at,
        }
    };
}

impl Machines {
    /// Indexes keys and certificates. The error names one that cannot be indexed.
    pub fn new(keys: Vec<MachineKey>, certificates: Vec<MachineCertificate>) -> Result<Machines, String> {
        let mut machines = Machines::default();
        for key in keys {
            let id = key.id.clone();
            let Ok(hash) = key.hash.as_slice().try_into() else {
                return Err(format!("machine key {id}: its hash does not have 32 bytes"));
            };
            if key.org.is_empty() || key.user.is_empty() {
                return Err(format!("machine key {id}: it has no org or user"));
            }
            if machines.keys.insert(id.clone(), IndexedKey { hash, key }).is_some() {
                return Err(format!("machine key {id}: it occurs twice"));
            }
        }
        for certificate in certificates {
            machines.add(certificate).map_err(|(id, fault)| format!("machine certificate {id}: {fault}"))?;
        }
        Ok(machines)
    }

    fn add(&mut self, certificate: MachineCertificate) -> Result<(), (String, &'static str)> {
        let id = certificate.id.clone();
        let fingerprint = certificate.fingerprint.as_slice();
        if certificate.org.is_empty() || certificate.user.is_empty() {
            return Err((id, "it has no org or user"));
        }
        if fingerprint.is_empty() && !certificate.uri.is_empty() {
            let known = self.uri_orgs.insert(certificate.uri.clone(), certificate.org.clone());
            if known.is_some() {
                return Err((id, "it occurs twice"));
            }
            if certificate.expires_at == RESERVED {
                return Ok(());
            }
        }
        let known = match (fingerprint.try_into(), certificate.uri.as_str()) {
            (Ok(fingerprint), "") => self.by_fingerprint.insert(fingerprint, id.clone()),
            (Err(_), uri) if fingerprint.is_empty() && !uri.is_empty() => {
                self.by_uri.insert(uri.to_owned(), id.clone())
            }
            _ => return Err((id, "it needs a fingerprint of 32 bytes, or a URI")),
        };
        let is_second = self.keys.contains_key(&id);
        if known.is_some() || is_second || self.certificates.insert(id.clone(), certificate).is_some() {
            return Err((id, "it occurs twice"));
        }
        Ok(())
    }

    /// Finds the machine that a key belongs to. Expiry and revocation are not checked here.
    pub fn caller(&self, key: &str) -> Option<Caller> {
        if key.len() > MAX_KEY {
            return None;
        }
        let (id, _) = key.strip_prefix(KEY_PREFIX)?.split_once('_')?;
        let digest: [u8; 32] = Sha256::digest(key).into();
        let known = self.keys.get(id);
        // Ids are not secret. For an unknown id a hash is compared all the same.
        let expected = known.map_or([0; 32], |known| known.hash);
        let is_same = constant_time_eq(&digest, &expected);
        let known = known.filter(|_| is_same)?;
        Some(caller_of!(known.key, digest))
    }

    /// Finds the machine that a certificate belongs to: by its only URI if the platform registered that, else by its
    /// hash, which anybody who saw the certificate could have registered. The hash therefore identifies no machine if
    /// a registered URI in `all_uris` belongs to another org, or if any of them is registered and possession of the
    /// certificate's key was not proved at registration. Expiry and revocation are not checked here.
    pub fn caller_with(
        &self,
        fingerprint: [u8; 32],
        uri: Option<&str>,
        all_uris: &[String],
    ) -> Option<Caller> {
        let by_uri = uri.and_then(|uri| self.by_uri.get(uri));
        let id = by_uri.or_else(|| self.by_fingerprint.get(&fingerprint))?;
        let known = self.certificates.get(id)?;
        let mut orgs = all_uris.iter().filter_map(|uri| self.uri_orgs.get(uri));
        if by_uri.is_none() && orgs.any(|org| !known.proved || *org != known.org) {
            return None;
        }
        Some(caller_of!(known, fingerprint))
    }

    /// Whether the key or certificate that a caller authenticated with is still registered.
    pub fn has(&self, caller: &Caller) -> bool {
        if let Some(known) = self.keys.get(&caller.wcit) {
            return constant_time_eq(&known.hash, &caller.digest);
        }
        let certificate = self.certificates.get(&caller.wcit);
        // A certificate registered by URI has no fingerprint; its URI was checked when it was presented.
        certificate.is_some_and(|known| known.fingerprint.is_empty() || known.fingerprint == caller.digest)
    }
}

/// Compares all bytes, wherever they differ.
fn constant_time_eq(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let differences = one.iter().zip(other).fold(0, |differences, (one, other)| differences | (one ^ other));
    // Without it the compiler might stop at the first difference.
    std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE";

    fn key(id: &str) -> MachineKey {
        MachineKey {
            id: id.into(),
            hash: Sha256::digest(format!("asp_psk_{id}_{SECRET}")).to_vec(),
            org: "acme".into(),
            user: "press".into(),
            groups: vec!["robots".into()],
            scopes: vec!["run".into()],
            issued_at: 5,
            expires_at: 9,
        }
    }

    #[test]
    fn a_key_is_its_machines_and_what_is_not_wholly_the_same_is_nobodys() {
        let machines = Machines::new(vec![key("0a1b"), key("ffff")], vec![]).unwrap();
        let good = format!("asp_psk_0a1b_{SECRET}");
        let caller = machines.caller(&good).unwrap();
        assert_eq!(
            (caller.org.as_str(), caller.user.as_str(), caller.wcit.as_str()),
            ("acme", "press", "0a1b")
        );
        assert_eq!((caller.issuer.as_str(), caller.issued_at, caller.expires_at), (MACHINE_ISSUER, 5, 9));
        assert_eq!(
            (caller.groups.clone(), caller.scopes.clone()),
            (vec!["robots".into()], vec!["run".into()])
        );
        assert!(machines.has(&caller));
        let digest = [0; 32];
        assert!(!machines.has(&Caller { digest, ..caller.clone() }) && !Machines::default().has(&caller));
        let mut bad: Vec<String> = (0..good.len())
            .map(|place| {
                let mut bytes = good.clone().into_bytes();
                bytes[place] ^= 1;
                String::from_utf8(bytes).unwrap()
            })
            .collect();
        bad.extend((0..good.len()).map(|length| good[..length].to_owned()));
        bad.extend([
            String::new(),
            format!("{good}="),
            format!("{good} "),
            good.to_uppercase(),
            format!("asp_psk_ffff_{SECRET}x"),
            format!("asp_psk__{SECRET}"),
            format!("asp_psk_none_{SECRET}"),
            format!("asp_psk_0a1b_{}", "x".repeat(1 << 20)),
        ]);
        for key in bad {
            assert_eq!(machines.caller(&key), None, "{key:.80}");
        }
    }

    #[test]
    fn keys_that_cannot_be_compared_are_refused() {
        let bad = [
            vec![MachineKey { hash: vec![0; 31], ..key("a") }],
            vec![MachineKey { org: String::new(), ..key("a") }],
            vec![MachineKey { user: String::new(), ..key("a") }],
            vec![key("a"), key("a")],
        ];
        for keys in bad {
            assert!(Machines::new(keys, vec![]).is_err());
        }
    }

    fn certificate(id: &str, fingerprint: Option<u8>, uri: &str) -> MachineCertificate {
        MachineCertificate {
            id: id.into(),
            fingerprint: fingerprint.map(|byte| vec![byte; 32]).unwrap_or_default(),
            uri: uri.into(),
            proved: true,
            org: "acme".into(),
            user: "press".into(),
            groups: vec!["robots".into()],
            scopes: vec![],
            issued_at: 5,
            expires_at: 9,
        }
    }

    #[test]
    fn a_certificate_is_known_by_its_hash_or_by_its_uri_and_by_nothing_like_it() {
        let uri = "spiffe://example.org/press-7";
        let known = vec![certificate("c1", Some(1), ""), certificate("c2", None, uri)];
        let machines = Machines::new(vec![key("0a1b")], known).unwrap();
        let of = |fingerprint: u8, uri: Option<&str>| {
            let all: Vec<String> = uri.into_iter().map(str::to_owned).collect();
            machines.caller_with([fingerprint; 32], uri, &all).map(|caller| caller.wcit)
        };
        assert_eq!(of(1, None).as_deref(), Some("c1"));
        assert_eq!(of(1, Some(uri)).as_deref(), Some("c2"), "a registered URI comes first");
        assert_eq!(of(1, Some("spiffe://example.org/other")).as_deref(), Some("c1"));
        assert_eq!(of(2, Some(uri)).as_deref(), Some("c2"));
        for other in [
            "",
            "spiffe://example.org/press-77",
            "spiffe://example.org/press-",
            "SPIFFE://EXAMPLE.ORG/PRESS-7",
        ] {
            assert_eq!(of(2, Some(other)), None, "{other}");
        }
        assert_eq!((of(2, None), of(0, None)), (None, None));
        let caller = machines.caller_with([2; 32], Some(uri), &[]).unwrap();
        assert_eq!((caller.org.as_str(), caller.user.as_str(), caller.digest), ("acme", "press", [2; 32]));
        assert!(machines.has(&caller) && !Machines::default().has(&caller));
        let shown = machines.caller_with([1; 32], None, &[]).unwrap();
        assert!(machines.has(&shown) && !machines.has(&Caller { digest: [2; 32], ..shown }));
    }

    #[test]
    fn a_uri_of_one_org_keeps_anothers_fingerprint_from_the_certificate_also_when_it_opens_nothing() {
        let of_uri = |expires_at| MachineCertificate { expires_at, ..certificate("c2", None, "urn://a") };
        let of_hash = |org: &str| MachineCertificate { org: org.into(), ..certificate("c1", Some(1), "") };
        let found = |known: Vec<MachineCertificate>, uri: Option<&str>, all: &[&str]| {
            let all: Vec<String> = all.iter().map(|uri| (*uri).to_owned()).collect();
            let machines = Machines::new(vec![], known).unwrap();
            machines.caller_with([1; 32], uri, &all).map(|caller| caller.wcit)
        };
        let reserved = |org| vec![of_uri(RESERVED), of_hash(org)];
        assert_eq!(found(reserved("globex"), Some("urn://a"), &["urn://a"]), None);
        assert_eq!(found(reserved("acme"), Some("urn://a"), &["urn://a"]).as_deref(), Some("c1"));
        assert_eq!(found(reserved("globex"), None, &[]).as_deref(), Some("c1"), "without the URI");
        let unproved = vec![of_uri(RESERVED), MachineCertificate { proved: false, ..of_hash("acme") }];
        assert_eq!(found(unproved, Some("urn://a"), &["urn://a"]), None, "it loses to any URI");
        let live = vec![of_uri(9), of_hash("globex")];
        assert_eq!(found(live, None, &["urn://b", "urn://a"]), None, "one of several URIs");
        let caller =
            Machines::new(vec![], vec![of_uri(9)]).unwrap().caller_with([1; 32], Some("urn://a"), &[]);
        let since = Machines::new(vec![], vec![of_uri(RESERVED)]).unwrap();
        assert!(!since.has(&caller.unwrap()), "what runs ends");
    }

    #[test]
    fn certificates_that_cannot_be_told_apart_are_refused() {
        let bad = [
            vec![certificate("a", None, "")],
            vec![certificate("a", Some(1), "urn:a")],
            vec![MachineCertificate { fingerprint: vec![1; 31], ..certificate("a", None, "") }],
            vec![MachineCertificate { fingerprint: vec![1; 31], ..certificate("a", None, "urn:a") }],
            vec![MachineCertificate { org: String::new(), ..certificate("a", Some(1), "") }],
            vec![MachineCertificate { user: String::new(), ..certificate("a", Some(1), "") }],
            vec![certificate("a", Some(1), ""), certificate("a", Some(2), "")],
            vec![certificate("a", Some(1), ""), certificate("b", Some(1), "")],
            vec![certificate("a", None, "urn:a"), certificate("b", None, "urn:a")],
            vec![certificate("0a1b", Some(1), "")],
        ];
        for certificates in bad {
            assert!(Machines::new(vec![key("0a1b")], certificates).is_err());
        }
    }
}
