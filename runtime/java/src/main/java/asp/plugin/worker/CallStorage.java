package asp.plugin.worker;

import asp.plugin.Json;
import asp.plugin.Storage;
import asp.plugin.v1.DeliverStorageAnswer;
import asp.plugin.v1.StorageDelete;
import asp.plugin.v1.StorageGet;
import asp.plugin.v1.StorageList;
import asp.plugin.v1.StoragePut;
import asp.plugin.v1.StorageRequested;
import com.google.protobuf.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** The author's view of what the plugin keeps, by requests of one {@link Call}. */
final class CallStorage implements Storage {
    private final Call call;
    private final boolean ofUser;

    CallStorage(Call call, boolean ofUser) {
        this.call = call;
        this.ofUser = ofUser;
    }

    @Override
    public Storage ofUser() {
        return new CallStorage(call, true);
    }

    @Override
    public Optional<StoredValue> getVersioned(String key) {
        DeliverStorageAnswer answer = ask(asked().setGet(StorageGet.newBuilder().setKey(key)));
        return answer.hasValue()
                ? Optional.of(new StoredValue(CallContext.parse(answer.getValue()), answer.getVersion()))
                : Optional.empty();
    }

    @Override
    public long put(String key, Object value, PutOptions options) {
        byte[] json = Json.bytes(value);
        if (json.length > Limits.STORED_BYTES) {
            throw Reasons.noStorage("too_large");
        }
        StoragePut.Builder put = StoragePut.newBuilder().setKey(key).setValue(Events.json(json));
        if (options.ttl() != null) {
            put.setTtl(Duration.newBuilder()
                    .setSeconds(options.ttl().getSeconds())
                    .setNanos(options.ttl().getNano()));
        }
        if (options.ifVersion() != null) {
            put.setIfVersion(options.ifVersion());
        }
        return ask(asked().setPut(put)).getVersion();
    }

    @Override
    public List<String> list(String prefix) {
        List<String> keys = new ArrayList<>();
        DeliverStorageAnswer page;
        do {
            String after = keys.isEmpty() ? "" : keys.get(keys.size() - 1);
            page = ask(asked().setList(StorageList.newBuilder().setPrefix(prefix).setAfter(after)));
            keys.addAll(page.getKeysList());
        } while (page.getHasMore() && page.getKeysCount() > 0);
        return keys;
    }

    @Override
    public boolean delete(String key) {
        return ask(asked().setDelete(StorageDelete.newBuilder().setKey(key))).getDeleted();
    }

    private StorageRequested.Builder asked() {
        return StorageRequested.newBuilder().setRequestId(call.request().requestId()).setOfUser(ofUser);
    }

    private DeliverStorageAnswer ask(StorageRequested.Builder asked) {
        DeliverStorageAnswer answer = call.askStorage(asked);
        if (!answer.getError().isEmpty()) {
            throw Reasons.noStorage(answer.getError());
        }
        return answer;
    }
}
