-- Takes one token from every bucket, or none.
-- KEYS: the buckets, each "<tokens> <at>", at in microseconds since 1970; one that is not there is full.
-- ARGV: of each its capacity, and the tokens that come back per second.
-- Answers {0, the fewest tokens that one has left} or {number of the empty bucket that takes longest to have one again,
-- milliseconds until then}.
local DAY = 86400000
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local after, at, least = {}, {}, math.huge
local empty, longest = 0, 0
for i, key in ipairs(KEYS) do
  local capacity, refill = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local tokens, now = capacity, clock
  local kept = redis.call('GET', key)
  if kept then
    local level, since = string.match(kept, '^(%S+) (%S+)$')
    -- Another server's clock may be behind the one that wrote it.
    now = math.max(clock, tonumber(since))
    tokens = math.min(capacity, tonumber(level) + (now - since) / 1000000 * refill)
  end
  local wait = (1 - tokens) / refill
  if wait > longest then empty, longest = i, wait end
  after[i], at[i] = tokens - 1, now
  least = math.min(least, after[i])
end
if empty > 0 then return {empty, math.min(DAY, math.max(1, math.ceil(longest * 1000)))} end
for i, key in ipairs(KEYS) do
  local capacity, refill = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local full = math.min(365 * DAY, math.ceil((capacity - after[i]) / refill * 1000)) + 1
  redis.call('SET', key, string.format('%.17g %.0f', after[i], at[i]), 'PX', string.format('%.0f', full))
end
return {0, math.floor(least)}
