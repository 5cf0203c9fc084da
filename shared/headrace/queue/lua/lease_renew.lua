-- Extend a lease that is still the caller's. KEYS: 1 lease. ARGV: 1 token, 2 milliseconds.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
