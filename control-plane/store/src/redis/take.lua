-- Draws once from every bucket, or from none.
-- KEYS: the buckets; one that is not there is full. By kind:
--   t: a string "<tokens> <at>", at in microseconds since 1970
--   f: a string "<window> <draws>", the window's number since 1970
--   s: a string "<part>:<draws> …", the oldest part of the window first
--   c: a sorted set of holders by the milliseconds until which each has a slot
-- ARGV: of each its capacity; the tokens that come back per second; its kind; the seconds of its window, or the milliseconds of a
-- slot's lease; the holder of the slot.
-- Answers {0, the fewest draws that one has left} or {number of the empty bucket that takes longest to have one again,
-- milliseconds until then}.
local DAY = 86400000
local PARTS = 10
-- Answered if no bucket counts: the largest whole number that is exact.
local MOST = 9007199254740991
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local ms = math.floor(clock / 1000)

-- Each answers the draws left after one now, below 0 if it is refused; the seconds to wait; what to store, and for how long.
local look = {}

function look.t(key, capacity, refill)
  local tokens, now = capacity, clock
  local kept = redis.call('GET', key)
  if kept then
    local level, since = string.match(kept, '^(%S+) (%S+)$')
    -- Another server's clock may be behind the one that wrote it.
    now = math.max(clock, tonumber(since))
    tokens = math.min(capacity, tonumber(level) + (now - since) / 1000000 * refill)
  end
  local full = math.min(365 * DAY, math.ceil((capacity - tokens + 1) / refill * 1000)) + 1
  return tokens - 1, (1 - tokens) / refill, string.format('%.17g %.0f', tokens - 1, now), full
end

function look.f(key, capacity, _, seconds)
  local length = seconds * 1000
  local window, used = math.floor(ms / length), 0
  local kept = redis.call('GET', key)
  if kept then
    local of, draws = string.match(kept, '^(%d+) (%d+)$')
    window = math.max(window, tonumber(of))
    if tonumber(of) == window then used = tonumber(draws) end
  end
  local left, rest = capacity - used - 1, math.max(1, (window + 1) * length - ms)
  return left, left < 0 and rest / 1000 or 0, string.format('%.0f %.0f', window, used + 1), rest + 1
end

function look.s(key, capacity, _, seconds)
  local length = seconds * 1000 / PARTS
  local current, used, parts = math.floor(ms / length), 0, {}
  for part, draws in string.gmatch(redis.call('GET', key) or '', '(%d+):(%d+)') do
    part, draws = tonumber(part), tonumber(draws)
    if part + PARTS >= current then
      table.insert(parts, {part, draws})
      used = used + draws
    end
  end
  local left, wait = capacity - used - 1, 0
  if left < 0 then
    local rest = used
    for _, one in ipairs(parts) do
      rest = rest - one[2]
      wait = math.max(1, (one[1] + PARTS + 1) * length - ms) / 1000
      if rest < capacity then break end
    end
  end
  local last = parts[#parts]
  if last and last[1] >= current then last[2] = last[2] + 1 else table.insert(parts, {current, 1}) end
  local text = {}
  for i, one in ipairs(parts) do text[i] = string.format('%.0f:%.0f', one[1], one[2]) end
  return left, wait, table.concat(text, ' '), math.ceil((PARTS + 2) * length)
end

function look.c(key, capacity, _, _, holder)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', ms)
  local held = redis.call('ZCARD', key)
  if redis.call('ZSCORE', key, holder) then held = held - 1 end
  local left = capacity - held - 1
  -- Nobody knows when a slot is given back.
  return left, left < 0 and 1 or 0
end

local found, least, empty, longest = {}, math.huge, 0, 0
for i, key in ipairs(KEYS) do
  local at = 5 * (i - 1)
  local one = {
    capacity = tonumber(ARGV[at + 1]), refill = tonumber(ARGV[at + 2]), kind = ARGV[at + 3],
    number = tonumber(ARGV[at + 4]), holder = ARGV[at + 5],
  }
  local left, wait, value, keep = look[one.kind](key, one.capacity, one.refill, one.number, one.holder)
  if wait > longest then empty, longest = i, wait end
  one.value, one.keep = value, keep
  found[i] = one
  if one.kind ~= 'c' then least = math.min(least, left) end
end
if empty > 0 then return {empty, math.min(DAY, math.max(1, math.ceil(longest * 1000)))} end
for i, key in ipairs(KEYS) do
  local one = found[i]
  if one.kind == 'c' then
    redis.call('ZADD', key, string.format('%.0f', ms + one.number), one.holder)
    if redis.call('PTTL', key) < one.number then redis.call('PEXPIRE', key, string.format('%.0f', one.number)) end
  else
    redis.call('SET', key, one.value, 'PX', string.format('%.0f', one.keep))
  end
end
return {0, math.min(MOST, math.floor(least))}
