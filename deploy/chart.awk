# Makes templates of the chart from the objects that kustomize built: each line that a
# value decides is replaced. deploy/generate runs it, and compares what the chart makes by
# default with what kustomize built.
function values(path, indent) { return "{{- toYaml .Values." path " | nindent " indent " }}" }

# The lines of a block that values replace.
skip && (length($0) - length(substr($0, match($0, /[^ ]/)))) > skip { next }
skip && /^      - / && list { next }
{ skip = 0; list = 0 }

/^        name: / { container = $2 }

{ sub(/image: felixlike:dev/, "image: {{ include \"felixlike.image\" . | quote }}")
  sub(/imagePullPolicy: IfNotPresent/, "imagePullPolicy: {{ .Values.image.pullPolicy }}")
  sub(/namespace: felixlike-system/, "namespace: {{ .Release.Namespace }}")
  sub(/serviceaccount:felixlike-system:/, "serviceaccount:{{ .Release.Namespace }}:")
  sub(/ path: \/opt\/cni\/bin$/, " path: {{ .Values.cni.binDir }}")
  sub(/ path: \/etc\/cni\/net.d$/, " path: {{ .Values.cni.confDir }}")
  sub(/app.kubernetes.io\/version: dev/, "app.kubernetes.io/version: {{ .Chart.AppVersion }}")
  sub(/felixlike.io\/image-digest: none/, "felixlike.io/image-digest: {{ .Values.image.digest | default \"none\" | quote }}") }

/^    app.kubernetes.io\/name: felixlike$/ { print; print "    {{- include \"felixlike.labels\" . | nindent 4 }}"; next }
/^        kubectl.kubernetes.io\/default-container: ovs/ {
  print
  print "        {{- with .Values.podAnnotations }}{{- toYaml . | nindent 8 }}{{- end }}"
  next
}
/^        kubectl.kubernetes.io\/default-container: agent/ {
  print
  print "        # Other settings roll the DaemonSet."
  print "        checksum/config: {{ include (print $.Template.BasePath \"/configmap.yaml\") . | sha256sum }}"
  print "        {{- with .Values.podAnnotations }}{{- toYaml . | nindent 8 }}{{- end }}"
  next
}
/^        name: agent$/ {
  print
  print "        {{- if .Values.monitoring.podMonitor }}"
  print "        ports:"
  print "        - containerPort: {{ include \"felixlike.metricsPort\" . }}"
  print "          name: metrics"
  print "          protocol: TCP"
  print "        {{- end }}"
  next
}
/^        - install$/ && set == "felixlike" {
  print
  print "        {{- if .Values.hostsAtBoot }}"
  print "        - --unit-dir=/host/etc/systemd/system"
  print "        - --node-cni-bin-dir={{ .Values.cni.binDir }}"
  print "        {{- end }}"
  next
}
/^        - mountPath: \/host\/opt\/cni\/bin$/ {
  print "        {{- if .Values.hostsAtBoot }}"
  print "        - mountPath: /host/etc/systemd/system"
  print "          name: units"
  print "        {{- end }}"
}
# Where the nodes have their own Open vSwitch, the agent finds its sockets there.
/^  name: / { set = $2 }
/^        - mountPath: \/run\/netns$/ {
  print "        {{- if not .Values.ovs.install }}"
  print "        - mountPath: {{ .Values.config.ovsRunDir }}"
  print "          name: ovs-run"
  print "        {{- end }}"
}
/^      volumes:$/ && set == "felixlike" {
  print
  print "      {{- if not .Values.ovs.install }}"
  print "      - hostPath:"
  print "          path: {{ .Values.config.ovsRunDir }}"
  print "          type: Directory"
  print "        name: ovs-run"
  print "      {{- end }}"
  print "      {{- if .Values.hostsAtBoot }}"
  print "      - hostPath:"
  print "          path: /etc/systemd/system"
  print "          type: DirectoryOrCreate"
  print "        name: units"
  print "      {{- end }}"
  next
}
/^    type: OnDelete$/ { print "    type: {{ .Values.ovs.updateStrategy }}"; next }
/^        env:$/ { print; print "        {{- with .Values.extraEnv }}{{- toYaml . | nindent 8 }}{{- end }}"; next }
/^        resources:$/ && container != "" { print; print "          " values("resources." container, 10); skip = 8; next }
/^      nodeSelector:$/ {
  print "      {{- with .Values.affinity }}"
  print "      affinity: {{- toYaml . | nindent 8 }}"
  print "      {{- end }}"
  print "      {{- with .Values.imagePullSecrets }}"
  print "      imagePullSecrets: {{- toYaml . | nindent 8 }}"
  print "      {{- end }}"
  print; print "        " values("nodeSelector", 8); skip = 6; next
}
/^      tolerations:$/ { print; print "        " values("tolerations", 8); skip = 6; list = 1; next }
/^      priorityClassName:/ { print "      priorityClassName: {{ .Values.priorityClassName }}"; next }
/^      maxUnavailable: 1$/ { print "      maxUnavailable: {{ .Values.maxUnavailable }}"; next }
/args: \[uninstall, --yes/ {
  sub(/--ovs-run-dir, .*/, "--ovs-run-dir, {{ .Values.config.ovsRunDir }}, --cni-bin-dir, /host{{ .Values.cni.binDir }}, --cni-conf-dir, /host{{ .Values.cni.confDir }}]")
}
{ print }
