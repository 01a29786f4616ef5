//! Operations of the control store, each with a timeout and implemented by the module that owns its rows.

use async_trait::async_trait;

use super::{
    SqlStore, answered, audit, bounds, certificates, changes, forms, issuers, machines, offers, placement,
    policy, primitives, revocations, servers,
};
use crate::control::{
    AuditQuery, AuditRecord, BindingRecord, CertificateName, Change, ControlState, ControlStore,
    ExposureRecord, HomeRecord, IssuerKeysRecord, IssuerRecord, LimitRecord, MachineBound,
    MachineCertificateRecord, MachineKeyRecord, Note, OfferRecord, Position, PrimitiveServer, PublishedForm,
    RegionRecord, RevocationPage, RevocationRecord, RouteRecord, ServerIds, ServerRecord, ServerVersion,
    Side, Since, SourceFile, StoreError, Versioned, Written,
};

#[async_trait]
impl ControlStore for SqlStore {
    async fn position(&self) -> Result<Position, StoreError> {
        let longest = self.timeouts.map(|timeouts| timeouts.poll);
        answered(longest, changes::position(&self.publishing)).await
    }

    async fn has(&self, known: &Position) -> Result<bool, StoreError> {
        self.within(async { changes::has(&mut self.published_snapshot().await?, known).await }).await
    }

    async fn raise_revision(&self, change: &Change, to: u64) -> Result<Written, StoreError> {
        self.within(self.raise(change, to)).await
    }

    async fn load(&self) -> Result<ControlState, StoreError> {
        self.within(async { changes::all(&mut self.published_snapshot().await?).await }).await
    }

    async fn since(&self, revision: u64) -> Result<Since, StoreError> {
        self.within(changes::since(self, revision)).await
    }

    async fn servers(&self) -> Result<Versioned<Vec<ServerRecord>>, StoreError> {
        self.within(async {
            let mut tx = self.snapshot().await?;
            let revision = changes::position(&mut *tx).await?.revision;
            Ok(Versioned { revision, value: servers::all(&mut tx).await? })
        })
        .await
    }

    async fn server(&self, name: &str) -> Result<Option<ServerRecord>, StoreError> {
        self.within(servers::one(&self.pool, name)).await
    }

    async fn server_versions(&self, name: &str) -> Result<Vec<ServerVersion>, StoreError> {
        self.within(servers::versions(self, name)).await
    }

    async fn server_version(&self, name: &str, revision: u64) -> Result<Option<ServerRecord>, StoreError> {
        self.within(servers::version(self, name, revision)).await
    }

    async fn register_server(
        &self,
        change: &Change,
        name: &str,
        files: &[SourceFile],
        content_hash: &str,
        ids: ServerIds<'_>,
    ) -> Result<Written, StoreError> {
        self.within(servers::put(self, change, name, (files, ids), content_hash)).await
    }

    async fn delete_server(&self, change: &Change, name: &str) -> Result<Written, StoreError> {
        self.within(servers::delete(self, change, name)).await
    }

    async fn primitive_servers(&self, id: &str) -> Result<Versioned<Vec<PrimitiveServer>>, StoreError> {
        self.within(primitives::of_id(self, id)).await
    }

    async fn take_primitives(
        &self,
        change: &Change,
        server: &str,
        ids: &[&str],
    ) -> Result<Written, StoreError> {
        self.within(primitives::take_stored(self, change, server, ids)).await
    }

    async fn grant_primitive(&self, change: &Change, id: &str, server: &str) -> Result<Written, StoreError> {
        self.within(primitives::grant(self, change, id, server)).await
    }

    async fn withdraw_primitive(
        &self,
        change: &Change,
        id: &str,
        server: &str,
    ) -> Result<Written, StoreError> {
        self.within(primitives::withdraw(self, change, id, server)).await
    }

    async fn put_published_forms(&self, forms: &[PublishedForm]) -> Result<(), StoreError> {
        self.within(forms::put(self, forms)).await
    }

    async fn forget_published_forms(&self, parts: &[(String, u64)]) -> Result<(), StoreError> {
        self.within(forms::forget(self, parts)).await
    }

    async fn published_forms(&self, parts: &[String]) -> Result<Vec<PublishedForm>, StoreError> {
        self.within(forms::of_parts(self, parts)).await
    }

    async fn offers(&self, server: &str) -> Result<Versioned<Vec<OfferRecord>>, StoreError> {
        self.within(offers::of_server(self, server)).await
    }

    async fn offers_to(&self, org: &str) -> Result<Vec<OfferRecord>, StoreError> {
        self.within(offers::to_org(self, org)).await
    }

    async fn offer_fits(&self, record: &OfferRecord) -> Result<(), StoreError> {
        self.within(offers::fits(self, record)).await
    }

    async fn put_offer(&self, change: &Change, record: &OfferRecord) -> Result<Written, StoreError> {
        self.within(offers::put(self, change, record)).await
    }

    async fn delete_offer(&self, change: &Change, record: &OfferRecord) -> Result<Written, StoreError> {
        self.within(offers::delete(self, change, record)).await
    }

    async fn exposure(&self, org: &str) -> Result<Versioned<Vec<ExposureRecord>>, StoreError> {
        self.within(policy::exposure(self, org)).await
    }

    async fn put_exposure(&self, change: &Change, record: &ExposureRecord) -> Result<Written, StoreError> {
        self.policy_write(|| policy::put_exposure(self, change, record)).await
    }

    async fn delete_exposure_of(&self, change: &Change, key: &ExposureRecord) -> Result<Written, StoreError> {
        self.policy_write(|| policy::delete_exposure_of(self, change, key)).await
    }

    async fn delete_exposure(&self, change: &Change, org: &str) -> Result<Written, StoreError> {
        self.policy_write(|| policy::delete_exposure(self, change, org)).await
    }

    async fn bindings(&self, org: &str) -> Result<Versioned<Vec<BindingRecord>>, StoreError> {
        self.within(policy::bindings(self, org)).await
    }

    async fn put_binding(&self, change: &Change, record: &BindingRecord) -> Result<Written, StoreError> {
        self.policy_write(|| policy::put_binding(self, change, record)).await
    }

    async fn delete_binding(&self, change: &Change, key: &BindingRecord) -> Result<Written, StoreError> {
        self.policy_write(|| policy::delete_binding(self, change, key)).await
    }

    async fn delete_bindings(&self, change: &Change, org: &str) -> Result<Written, StoreError> {
        self.policy_write(|| policy::delete_bindings(self, change, org)).await
    }

    async fn limits(&self, org: &str) -> Result<Versioned<Vec<LimitRecord>>, StoreError> {
        self.within(policy::limits(self, org)).await
    }

    async fn put_limits(
        &self,
        change: &Change,
        org: &str,
        list: &[LimitRecord],
    ) -> Result<Written, StoreError> {
        self.policy_write(|| policy::put_limits(self, change, org, list)).await
    }

    async fn delete_limits(&self, change: &Change, org: &str) -> Result<Written, StoreError> {
        self.policy_write(|| policy::put_limits(self, change, org, &[])).await
    }

    async fn machine_bound(&self, org: &str) -> Result<Versioned<MachineBound>, StoreError> {
        self.within(bounds::get(self, org)).await
    }

    async fn put_machine_bound(
        &self,
        change: &Change,
        org: &str,
        bound: &MachineBound,
    ) -> Result<Written, StoreError> {
        self.within(bounds::put(self, change, org, bound)).await
    }

    async fn machine_keys(&self, org: &str) -> Result<Vec<MachineKeyRecord>, StoreError> {
        self.within(async { Ok(machines::of_org(&self.pool, org).await?.0) }).await
    }

    async fn add_machine_key(
        &self,
        change: &Change,
        record: &MachineKeyRecord,
    ) -> Result<Written, StoreError> {
        self.within(machines::add(self, change, record)).await
    }

    async fn delete_machine_key(&self, change: &Change, org: &str, id: &str) -> Result<Written, StoreError> {
        self.within(machines::delete(self, change, org, id)).await
    }

    async fn machine_certificates(&self, org: &str) -> Result<Vec<MachineCertificateRecord>, StoreError> {
        self.within(async { Ok(certificates::of_org(&self.pool, org).await?.0) }).await
    }

    async fn machine_certificate_named(
        &self,
        name: &CertificateName,
    ) -> Result<Option<MachineCertificateRecord>, StoreError> {
        self.within(certificates::named(&self.pool, name)).await
    }

    async fn put_machine_certificate(
        &self,
        change: &Change,
        record: &MachineCertificateRecord,
    ) -> Result<(String, Written), StoreError> {
        self.within(certificates::put(self, change, record)).await
    }

    async fn delete_machine_certificate(
        &self,
        change: &Change,
        org: &str,
        id: &str,
    ) -> Result<Written, StoreError> {
        self.within(certificates::delete(self, change, org, id)).await
    }

    async fn issuers(&self) -> Result<Vec<IssuerRecord>, StoreError> {
        self.within(async { Ok(issuers::all(&self.pool).await?.0) }).await
    }

    async fn issuer(&self, side: Side, name: &str) -> Result<Option<IssuerRecord>, StoreError> {
        self.within(issuers::one(self, side, name)).await
    }

    async fn put_issuer(
        &self,
        change: &Change,
        side: Side,
        name: &str,
        document: &str,
    ) -> Result<Written, StoreError> {
        self.within(issuers::put(self, change, (side, name), document)).await
    }

    async fn delete_issuer(&self, change: &Change, side: Side, name: &str) -> Result<Written, StoreError> {
        self.within(issuers::delete(self, change, side, name)).await
    }

    async fn former_iss(&self, side: Side, name: &str) -> Result<Option<String>, StoreError> {
        self.within(issuers::former_iss(self, side, name)).await
    }

    async fn issuer_keys(&self) -> Result<Vec<IssuerKeysRecord>, StoreError> {
        self.within(issuers::all_keys(&self.pool)).await
    }

    async fn put_issuer_keys(
        &self,
        change: &Change,
        record: &IssuerKeysRecord,
    ) -> Result<Written, StoreError> {
        self.within(issuers::put_keys(self, change, record)).await
    }

    async fn routes(&self) -> Result<Versioned<Vec<RouteRecord>>, StoreError> {
        self.within(placement::routes(self)).await
    }

    async fn put_routes(&self, change: &Change, list: &[RouteRecord]) -> Result<Written, StoreError> {
        self.within(placement::put_routes(self, change, list)).await
    }

    async fn regions(&self) -> Result<Versioned<Vec<RegionRecord>>, StoreError> {
        self.within(placement::regions(self)).await
    }

    async fn put_regions(&self, change: &Change, list: &[RegionRecord]) -> Result<Written, StoreError> {
        self.within(placement::put_regions(self, change, list)).await
    }

    async fn homes(&self) -> Result<Vec<HomeRecord>, StoreError> {
        self.within(placement::homes(self)).await
    }

    async fn home(&self, org: &str) -> Result<Option<Versioned<HomeRecord>>, StoreError> {
        self.within(placement::home(self, org)).await
    }

    async fn put_home(&self, change: &Change, record: &HomeRecord) -> Result<Written, StoreError> {
        self.within(placement::put_home(self, change, record)).await
    }

    async fn delete_home(&self, change: &Change, org: &str) -> Result<Written, StoreError> {
        self.within(placement::delete_home(self, change, org)).await
    }

    async fn revocations(&self, org: Option<&str>, limit: u32) -> Result<Vec<RevocationRecord>, StoreError> {
        self.within(revocations::list(self, org, limit)).await
    }

    async fn revocation(&self, id: &str) -> Result<Option<RevocationRecord>, StoreError> {
        self.within(revocations::one(&self.revoking, id)).await
    }

    async fn add_revocation(
        &self,
        change: &Change,
        record: &RevocationRecord,
    ) -> Result<Written, StoreError> {
        self.within(revocations::add(self, change, record)).await
    }

    async fn add_revocations(
        &self,
        change: &Change,
        records: &[RevocationRecord],
    ) -> Result<Written, StoreError> {
        self.within(revocations::add_several(self, change, records)).await
    }

    async fn revoked_since(&self, revision: u64) -> Result<RevocationPage, StoreError> {
        self.within(revocations::since(self, revision)).await
    }

    async fn delete_revocation(&self, change: &Change, id: &str) -> Result<Written, StoreError> {
        self.within(revocations::delete(self, change, id)).await
    }

    async fn prune(&self, change: &Change, keep_audit: u64) -> Result<u64, StoreError> {
        let at = self.within(self.not_after_database(change.at)).await?;
        let change = Change { at, ..change.clone() };
        self.within(audit::prune(self, keep_audit)).await?;
        self.within(servers::prune(self, at)).await?;
        self.within(forms::prune(self)).await?;
        self.within(revocations::prune(self, &change)).await
    }

    async fn note(&self, change: &Change, note: Note<'_>) -> Result<Written, StoreError> {
        self.within(async {
            let mut write = self.write(change, note.resource.to_owned()).await?;
            write.org = note.org.to_owned();
            write.commit(note.action, note.detail).await
        })
        .await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<Vec<AuditRecord>, StoreError> {
        self.within(audit::list(self, query)).await
    }
}
