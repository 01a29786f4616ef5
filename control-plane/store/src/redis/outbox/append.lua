-- Appends entries to what is kept of a call.
-- KEYS: the call, a hash: "owner"; and where a log was begun "log", "next", which is the number of the entry that comes
-- next, "bytes", of all entries, and by "q" and its number each open entry that came before the others. Its entries, a list,
-- oldest first: the last one has the number before "next".
-- ARGV: milliseconds for which both are kept at least, most entries, most bytes, the owner, the log, the number of the
-- first entry, 1 where what is there is replaced or else 0, most open entries from before the others, how many are open, how
-- many of those come with this, the numbers of all that are open, number and entry of each that comes with this, the entries…
-- Answers "stored", "not owner" or "missing".
local most, room, first = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[6])
local OPEN = 11
local PINNED = OPEN + tonumber(ARGV[9])
local ENTRIES = PINNED + 2 * tonumber(ARGV[10])
local known = redis.call('HMGET', KEYS[1], 'owner', 'log', 'next', 'bytes')
if known[1] and known[1] ~= ARGV[4] then return 'not owner' end
local number, bytes, count = first, 0, 0
local reset = ARGV[7] == '1'
if reset then
  redis.call('DEL', KEYS[2])
else
  if known[2] ~= ARGV[5] then return 'missing' end
  number, bytes, count = tonumber(known[3]), tonumber(known[4]), redis.call('LLEN', KEYS[2])
  if first > number then return 'missing' end
  -- The list was lost without the hash.
  if count == 0 and bytes > 0 then return 'missing' end
end
local open = {}
for i = OPEN, PINNED - 1 do open[ARGV[i]] = true end
local pinned, held = 0, 0
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  local asked = string.match(field, '^q(%d+)$')
  if asked and (reset or not open[asked]) then
    redis.call('HDEL', KEYS[1], field)
  elseif asked then
    pinned, held = pinned + 1, held + redis.call('HSTRLEN', KEYS[1], field)
  end
end
local function pin(asked, entry)
  if not open[asked] or pinned >= tonumber(ARGV[8]) or held + #entry > room then return end
  redis.call('HSET', KEYS[1], 'q' .. asked, entry)
  pinned, held = pinned + 1, held + #entry
end
for i = PINNED, ENTRIES - 1, 2 do pin(ARGV[i], ARGV[i + 1]) end
-- The difference first: the sum with a large number would not be exact.
for i = ENTRIES + (number - first), #ARGV do
  redis.call('RPUSH', KEYS[2], ARGV[i])
  number, bytes, count = number + 1, bytes + #ARGV[i], count + 1
end
while count > 1 and (count > most or bytes > room) do
  local oldest = redis.call('LPOP', KEYS[2])
  pin(string.format('%.0f', number - count), oldest)
  bytes, count = bytes - #oldest, count - 1
end
redis.call('HSET', KEYS[1], 'owner', ARGV[4], 'log', ARGV[5], 'next', string.format('%.0f', number), 'bytes', bytes)
local left = math.max(tonumber(ARGV[1]), redis.call('PTTL', KEYS[1]))
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, left) end
return 'stored'
