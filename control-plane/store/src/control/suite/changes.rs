//! Changes add up to the current state.

use crate::control::sql::ControlStore;
use crate::control::{ChangedRevocations, ControlState, MachineBound, OrgState, StateUpdate};

/// A state kept up to date by changes.
#[derive(Default)]
pub(super) struct Follower {
    state: ControlState,
}

impl Follower {
    /// Applies the changes since the last call.
    pub(super) async fn catch_up(&mut self, store: &ControlStore) {
        match store.since(self.state.revision).await.unwrap() {
            StateUpdate::All(state) => panic!("everything instead of what changed up to {}", state.revision),
            StateUpdate::Changed(changed) => {
                let state = &mut self.state;
                (state.revision, state.stamp) = (changed.revision, changed.stamp);
                state.issuers = changed.issuers;
                state.issuer_keys = changed.issuer_keys;
                for (name, record) in changed.servers {
                    state.servers.retain(|server| server.name != name);
                    state.servers.extend(record);
                }
                for org in changed.orgs {
                    self.replace(org);
                }
                if let Some(machines) = changed.machines {
                    self.state.machines = machines;
                }
                if let Some(placement) = changed.placement {
                    self.state.placement = placement;
                }
                if let Some(offers) = changed.offers {
                    self.state.offers = offers;
                }
                self.revoke(changed.revocations);
            }
        }
        let mut stored = store.load().await.unwrap();
        for state in [&mut self.state, &mut stored] {
            sort(state);
        }
        assert_eq!(self.state, stored);
    }

    fn replace(&mut self, new: OrgState) {
        let OrgState {
            org,
            exposure,
            bindings,
            limits,
            machine_keys,
            machine_certificates,
            machine_bound,
            ..
        } = new;
        let state = &mut self.state;
        state.exposure.retain(|record| record.org != org);
        state.exposure.extend(exposure);
        state.bindings.retain(|record| record.org != org);
        state.bindings.extend(bindings);
        state.limits.retain(|(of, _)| *of != org);
        state.limits.extend(limits.into_iter().map(|limit| (org.clone(), limit)));
        state.machines.keys.retain(|record| record.org != org);
        state.machines.keys.extend(machine_keys);
        state.machines.certificates.retain(|record| record.org != org);
        state.machines.certificates.extend(machine_certificates);
        state.machines.bounds.remove(&org);
        if machine_bound != MachineBound::default() {
            state.machines.bounds.insert(org, machine_bound);
        }
    }

    fn revoke(&mut self, changed: ChangedRevocations) {
        let revocations = &mut self.state.revocations;
        match changed {
            ChangedRevocations::All(all) => *revocations = all,
            ChangedRevocations::These(these) => {
                for (id, record) in these {
                    revocations.retain(|known| known.id != id);
                    revocations.extend(record);
                }
            }
        }
    }
}

/// Sorts independently of the order of arrival; limits keep theirs within an org.
fn sort(state: &mut ControlState) {
    state.servers.sort_by(|a, b| a.name.cmp(&b.name));
    state.exposure.sort_by_key(|record| format!("{record:?}"));
    state.bindings.sort_by_key(|record| format!("{record:?}"));
    state.limits.sort_by(|(a, _), (b, _)| a.cmp(b));
    state.revocations.sort_by(|a, b| a.id.cmp(&b.id));
    state.machines.keys.sort_by(|a, b| a.id.cmp(&b.id));
    state.machines.certificates.sort_by(|a, b| a.id.cmp(&b.id));
}

/// A write of one org deletes expired machines of another.
pub(super) async fn of_machines_are_those_of_every_org(store: &ControlStore) {
    let mut followed = Follower { state: store.load().await.unwrap() };
    let key = |id: &str, org: &str, expires_at: u64| crate::control::MachineKeyRecord {
        id: id.into(),
        org: org.into(),
        machine: "press".into(),
        hash: id.repeat(4),
        groups: Vec::new(),
        scopes: Vec::new(),
        created_at: 1,
        expires_at,
    };
    let at = |at| crate::control::Change { at, ..super::change() };
    let bound = MachineBound { scopes: ["x:read".to_owned()].into(), ..MachineBound::default() };
    let written = store.put_machine_bound(&at(5), "other", &bound).await.unwrap();
    followed.catch_up(store).await;
    assert!(!store.put_machine_bound(&at(6), "other", &bound).await.unwrap().changed, "the same again");
    let stored = store.machine_bound("other").await.unwrap();
    assert_eq!((stored.revision, &stored.value), (written.revision, &bound));
    // Entries as long as the API accepts, in a form that no index compresses.
    let long =
        |kind: &str| (0..256).map(|n: u64| format!("{kind}{:0>120x}", u128::from(n + 1).pow(9))).collect();
    let longest = MachineBound { groups: long("g"), scopes: long("s") };
    store.put_machine_bound(&at(6), "other", &longest).await.unwrap();
    assert_eq!(store.machine_bound("other").await.unwrap().value, longest);
    store.put_machine_bound(&at(7), "other", &bound).await.unwrap();
    followed.catch_up(store).await;
    assert_eq!(bound.beyond(&["g".into()], &[]), Some(("group", "g")));
    assert_eq!(bound.beyond(&[], &["x:read".into(), "x".into()]), Some(("scope", "x")));
    assert_eq!(bound.beyond(&[], &["x:read".into()]), None);
    store.add_machine_key(&at(10), &key("aaaaaaaaaaaaaaaa", "ended", 20)).await.unwrap();
    followed.catch_up(store).await;
    store.add_machine_key(&at(30), &key("bbbbbbbbbbbbbbbb", "other", 90_000)).await.unwrap();
    followed.catch_up(store).await;
    assert!(followed.state.machines.keys.iter().all(|key| key.org != "ended"), "it was forgotten");
    store.delete_machine_key(&at(40), "other", "bbbbbbbbbbbbbbbb").await.unwrap();
    followed.catch_up(store).await;
    store.put_machine_bound(&at(50), "other", &MachineBound::default()).await.unwrap();
    followed.catch_up(store).await;
    assert!(followed.state.machines.bounds.is_empty(), "an empty one is none");
}

pub(super) async fn of_an_unknown_revision_are_everything(store: &ControlStore) {
    let revision = store.revision().await.unwrap();
    let StateUpdate::All(state) = store.since(revision + 1).await.unwrap() else {
        panic!("a revision that the store never had");
    };
    assert_eq!(state, store.load().await.unwrap());
    let change = super::change();
    // The audit rows that recorded an org's earlier changes are pruned.
    store.prune(&change, 0).await.unwrap();
    assert!(matches!(store.since(0).await.unwrap(), StateUpdate::All(_)));
    let StateUpdate::Changed(none) = store.since(revision).await.unwrap() else {
        panic!("nothing changed");
    };
    assert!(none.servers.is_empty() && none.orgs.is_empty());
}
