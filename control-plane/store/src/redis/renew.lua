-- Extends the leases of slots, also of those that were lost (see take.lua).
-- KEYS: the buckets. ARGV: of each the milliseconds of the lease, and the holder of the slot.
local time = redis.call('TIME')
local ms = math.floor((time[1] * 1000000 + time[2]) / 1000)
for i, key in ipairs(KEYS) do
  local lease = tonumber(ARGV[2 * i - 1])
  redis.call('ZADD', key, string.format('%.0f', ms + lease), ARGV[2 * i])
  if redis.call('PTTL', key) < lease then redis.call('PEXPIRE', key, string.format('%.0f', lease)) end
end
return 0
