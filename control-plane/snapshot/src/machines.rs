//! Which machine a key belongs to (`psk`).
//!
//! Owns: the answer for one key. Refuses: whatever else a request needs, which the edge's code evaluates for the caller
//! (`asp_edge::Edge::found`): end, revocation, exposure, scopes. Keeps true: no secret is here, and a comparison takes as
//! long wherever two hashes differ. One round of SHA-256 is enough for what is kept: a key has 256 random bits, so that
//! nobody can try the likely ones, which slow hashes are for.

use std::collections::HashMap;

use asp_edge::{Caller, KEY_PREFIX, MACHINE_ISSUER};
use asp_proto::snapshot::MachineKey;
use sha2::{Digest, Sha256};

/// Longest key that is looked at, in bytes; the ones that are made have 68.
const MAX_KEY: usize = 128;

/// The keys in force, by id.
#[derive(Default)]
pub struct Machines {
    by_id: HashMap<String, Known>,
}

struct Known {
    hash: [u8; 32],
    key: MachineKey,
}

impl Machines {
    /// `Err` names a key that cannot be compared.
    pub fn new(keys: Vec<MachineKey>) -> Result<Machines, String> {
        let mut by_id = HashMap::new();
        for key in keys {
            let id = key.id.clone();
            let Ok(hash) = key.hash.as_slice().try_into() else {
                return Err(format!("machine key {id}: its hash has not 32 bytes"));
            };
            if key.org.is_empty() || key.user.is_empty() {
                return Err(format!("machine key {id}: it belongs to nobody"));
            }
            if by_id.insert(id.clone(), Known { hash, key }).is_some() {
                return Err(format!("machine key {id}: it is there twice"));
            }
        }
        Ok(Machines { by_id })
    }

    /// Whose key it is; whether it has ended or was revoked is not asked here.
    pub fn caller(&self, key: &str) -> Option<Caller> {
        if key.len() > MAX_KEY {
            return None;
        }
        let (id, _) = key.strip_prefix(KEY_PREFIX)?.split_once('_')?;
        let digest: [u8; 32] = Sha256::digest(key).into();
        let known = self.by_id.get(id);
        // An id is no secret. Of one that is not there the hash is compared all the same.
        let expected = known.map_or([0; 32], |known| known.hash);
        let is_same = same(&digest, &expected);
        let known = known.filter(|_| is_same)?;
        let MachineKey { org, user, groups, scopes, issued_at, expires_at, .. } = &known.key;
        Some(Caller {
            org: org.clone(),
            user: user.clone(),
            groups: groups.clone(),
            scopes: scopes.clone(),
            client: String::new(),
            wcit: id.to_owned(),
            digest,
            issuer: MACHINE_ISSUER.to_owned(),
            issued_at: *issued_at,
            expires_at: *expires_at,
        })
    }

    /// Whether the key with which a caller came is still there.
    pub fn has(&self, caller: &Caller) -> bool {
        self.by_id.get(&caller.wcit).is_some_and(|known| same(&known.hash, &caller.digest))
    }
}

/// Looks at every byte, wherever they differ.
fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let differences = one.iter().zip(other).fold(0, |differences, (one, other)| differences | (one ^ other));
    // Else a compiler may see that one difference is enough.
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
        let machines = Machines::new(vec![key("0a1b"), key("ffff")]).unwrap();
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
            assert!(Machines::new(keys).is_err());
        }
    }
}
