-- Puts the record of a call that has none, or replaces it, and removes the oldest ones beyond the quotas.
-- KEYS: the record; of the org, when its records end, a sorted set of "<call>:<bytes>:<list>" by milliseconds since 1970,
-- and the bytes of all of them; the list, a sorted set of calls by the time of their end.
-- ARGV: the call, milliseconds for which the record is kept, most records of the list, most records and bytes of the org,
-- the record, the time of the call's end, the list's name, the beginning of all keys of the org, 1 if it replaces a record.
-- Answers 1 where it is stored, or else 0. A record without content is in no list.
if ARGV[10] == '0' and redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local bytes = tonumber(redis.call('GET', KEYS[3]) or '0')
local size, org = #ARGV[6], ARGV[9]

-- Removes the entry of a record, and the record if its time is not over.
local function remove(member, lasts)
  local call, length, list = string.match(member, '^(%x+):(%d+):(%x+)$')
  if redis.call('ZREM', KEYS[2], member) == 1 then bytes = bytes - tonumber(length) end
  if lasts then redis.call('DEL', org .. call) end
  -- There may be another one of that call by now.
  if lasts or redis.call('EXISTS', org .. call) == 0 then redis.call('ZREM', org .. 'list:' .. list, call) end
end

remove(ARGV[1] .. ':' .. redis.call('STRLEN', KEYS[1]) .. ':' .. ARGV[8], true)
-- What is over, some at a time: there comes at most one with each.
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 100)) do
  remove(member, false)
end
local over = redis.call('ZCARD', KEYS[4]) + 1 - tonumber(ARGV[3])
if size > 0 and over > 0 then
  for _, call in ipairs(redis.call('ZRANGE', KEYS[4], 0, over - 1)) do
    remove(call .. ':' .. redis.call('STRLEN', org .. call) .. ':' .. ARGV[8], true)
  end
end
while redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[4]) or bytes + size > tonumber(ARGV[5]) do
  local first = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if not first then
    -- They were lost without their count.
    bytes = 0
    break
  end
  remove(first, true)
end
redis.call('SET', KEYS[1], ARGV[6], 'PX', ARGV[2])
local member = ARGV[1] .. ':' .. size .. ':' .. ARGV[8]
bytes = bytes + size * redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[2]), member)
local left = math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[2]))
redis.call('PEXPIRE', KEYS[2], string.format('%.0f', left))
redis.call('SET', KEYS[3], string.format('%.0f', math.max(0, bytes)), 'PX', string.format('%.0f', left))
if size > 0 then
  redis.call('ZADD', KEYS[4], ARGV[7], ARGV[1])
  redis.call('PEXPIRE', KEYS[4], string.format('%.0f', math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[4]))))
end
return 1
