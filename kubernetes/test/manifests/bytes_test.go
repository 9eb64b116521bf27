package manifests

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	admissionapi "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
)

// expression of a policy, as the API server's compiler takes it.
type expression struct {
	name, text string
	returns    []*cel.Type
}

func (e *expression) GetName() string          { return e.name }
func (e *expression) GetExpression() string    { return e.text }
func (e *expression) ReturnTypes() []*cel.Type { return e.returns }

// refusals of an object in a namespace, which some user makes, or changes from an old one: the messages of the validations that do not hold.
func refusals(t *testing.T, policy *admissionapi.ValidatingAdmissionPolicy, namespace *v1.Namespace, object, old runtime.Object, who user.Info) []string {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	options := plugincel.OptionalVariableDeclarations{}
	for _, variable := range policy.Spec.Variables {
		compiled := compiler.CompileAndStoreVariable(&expression{variable.Name, variable.Expression, []*cel.Type{cel.AnyType, cel.DynType}}, options, environment.NewExpressions)
		if compiled.Error != nil {
			t.Fatalf("%s: %v", variable.Name, compiled.Error)
		}
	}
	var conditions, messages []plugincel.ExpressionAccessor
	for _, validation := range policy.Spec.Validations {
		message := validation.MessageExpression
		if message == "" {
			message = strconv.Quote(validation.Message)
		}
		conditions = append(conditions, &expression{text: validation.Expression, returns: []*cel.Type{cel.BoolType}})
		messages = append(messages, &expression{text: message, returns: []*cel.Type{cel.StringType}})
	}
	kind := object.GetObjectKind().GroupVersionKind()
	resource := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: strings.ToLower(kind.Kind) + "s"}
	operation := admission.Create
	if old != nil {
		operation = admission.Update
	}
	attributes := admission.NewAttributesRecord(object, old, kind, namespace.Name, "c", resource, "", operation, &metav1.CreateOptions{}, false, who)
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedObject: admission.NewLazyObject(object), VersionedKind: kind}
	if old != nil {
		versioned.VersionedOldObject = admission.NewLazyObject(old)
	}
	request := plugincel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))
	evaluate := func(all []plugincel.ExpressionAccessor) []plugincel.EvaluationResult {
		evaluator := compiler.CompileCondition(all, options, environment.NewExpressions)
		if errs := evaluator.CompilationErrors(); len(errs) > 0 {
			t.Fatal(errs)
		}
		results, _, err := evaluator.ForInput(context.Background(), versioned, request, plugincel.OptionalVariableBindings{}, namespace, celconfig.RuntimeCELCostBudget)
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	texts := evaluate(messages)
	var refused []string
	for n, result := range evaluate(conditions) {
		if result.Error != nil {
			t.Fatalf("%s: %v", policy.Spec.Validations[n].Expression, result.Error)
		}
		if result.EvalResult.Value() != true {
			refused = append(refused, texts[n].EvalResult.Value().(string))
		}
	}
	return refused
}

func request(class, size string) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: "ram", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class, Capacity: sized("size", size)}}
}

func sized(key resourceapi.QualifiedName, size string) *resourceapi.CapacityRequirements {
	if size == "" {
		return nil
	}
	return &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{key: resource.MustParse(size)}}
}

func TestANamespaceLeasesNoMoreThanItsLabelSays(t *testing.T) {
	all := objects(t, filepath.Join(dir, "samples/bytes.yaml"))
	policy, binding := all[0].(*admissionapi.ValidatingAdmissionPolicy), all[1].(*admissionapi.ValidatingAdmissionPolicyBinding)
	if binding.Spec.PolicyName != policy.Name {
		t.Error("the binding is of another policy")
	}
	const ours = "zero.prezero.dev"
	either := func(sizes ...string) resourceapi.DeviceRequest {
		one := resourceapi.DeviceRequest{Name: "either"}
		for n, size := range sizes {
			one.FirstAvailable = append(one.FirstAvailable, resourceapi.DeviceSubRequest{Name: string(rune('a' + n)), DeviceClassName: ours, Capacity: sized("prezero.dev/size", size)})
		}
		return one
	}
	for n, c := range []struct {
		label    string
		requests []resourceapi.DeviceRequest
		why      string
	}{
		{"4Gi", []resourceapi.DeviceRequest{request(ours, "4Gi")}, ""},
		{"4Gi", []resourceapi.DeviceRequest{request(ours, "4294967296")}, ""},
		{"4Gi", []resourceapi.DeviceRequest{request(ours, "4294967297")}, "at most 4Gi"},
		{"4Gi", []resourceapi.DeviceRequest{request(ours, "2Mi"), request(ours, "5Gi")}, "at most 4Gi"},
		{"4Gi", []resourceapi.DeviceRequest{request(ours, "")}, "give capacity.requests.size"},
		{"4Gi", []resourceapi.DeviceRequest{request("gpu.example.com", ""), request("gpu.example.com", "80Gi")}, ""},
		{"4Gi", []resourceapi.DeviceRequest{either("1Gi", "2Gi")}, ""},
		{"4Gi", []resourceapi.DeviceRequest{either("1Gi", "8Gi")}, "at most 4Gi"},
		{"4Gi", []resourceapi.DeviceRequest{either("1Gi", "")}, "give capacity.requests.size"},
		{"4Gi", nil, ""},
		{"much", []resourceapi.DeviceRequest{request(ours, "2Mi")}, "is much; give a quantity such as 4Gi"},
	} {
		namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"prezero.dev/lease-bytes": c.label}}}
		spec := resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: c.requests}}
		for _, object := range []runtime.Object{
			&resourceapi.ResourceClaim{TypeMeta: metav1.TypeMeta{Kind: "ResourceClaim", APIVersion: "resource.k8s.io/v1"}, Spec: spec},
			&resourceapi.ResourceClaimTemplate{TypeMeta: metav1.TypeMeta{Kind: "ResourceClaimTemplate", APIVersion: "resource.k8s.io/v1"},
				Spec: resourceapi.ResourceClaimTemplateSpec{Spec: spec}},
		} {
			refused := strings.Join(refusals(t, policy, namespace, object, nil, nil), "; ")
			if c.why == "" && refused != "" || !strings.Contains(refused, c.why) {
				t.Errorf("%d, a %s: refused %q", n, object.GetObjectKind().GroupVersionKind().Kind, refused)
			}
		}
	}
	quota := all[2].(*v1.ResourceQuota)
	if _, ok := quota.Spec.Hard[ours+".deviceclass.resource.k8s.io/devices"]; !ok {
		t.Error("the quota counts other devices")
	}
}
